"""Step times from NVIDIA's aiconfigurator, whose database holds kernels measured on many GPUs.

Each (GPU, model, tensor-parallel size, precision) is turned into a table once. A decode step is
what the package says; a step with prefill is composed as its own mixed steps are, of everything but
attention at all new tokens, context attention of the chunk and generation attention of the decoding
sequences (aiconfigurator_core, sdk/engine.py, EngineHandle). Attention on cached tokens and
element-wise operations are the package's formulas, the rest is interpolated from measurements.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, resources
from typing import Any, Literal

import numpy as np

from sched_env.cost.measured import NUMBER_COLUMNS, MeasuredSteps, group_name, slug
from sched_env.errors import ConfigError, MissingExtraError, did_you_mean

PACKAGE = "aiconfigurator-core"
_MODULE = "aiconfigurator_core"
_BACKEND = "vllm"

AicPrecision = Literal["bf16", "fp8"]

_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_CONTEXTS = (64, 128, 512, 2048, 8192, 32768)
_CHUNKS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_PASTS = (0, 1024, 4096, 16384)
_MIXED_SEQUENCES = (1, 8, 32, 128, 256, 512)
_MIXED_CONTEXTS = (128, 512, 2048, 8192)
_MIXED_CHUNKS = (16, 64, 128, 256, 512, 1024, 2048, 8192)
_MIXED_PASTS = (0, 1024, 4096)
_MOST_CONTEXT_TOKENS = 2**20  # of all sequences together: more than any KV pool holds


def aiconfigurator_steps(
    gpu: str, model: str, *, tp: int = 1, precision: AicPrecision = "bf16"
) -> MeasuredSteps:
    """Return the table of a GPU and a model, from aiconfigurator's database.

    Args:
        gpu: A system of the package, such as h100_sxm or h100-sxm.
        model: A model of the package: its full name, or the last part as presets spell it.
        tp: GPUs that share the model.
        precision: Of the matrix products.

    Raises:
        MissingExtraError: The package is not installed.
        ConfigError: The package does not know the GPU, the model or the pair; the message lists
            the nearest.
    """
    system, full_model = _known_system(gpu), _known_model(model)
    engine = _engine(system, full_model, tp, precision)
    rows = list(_decode_rows(engine)) + list(_prefill_rows(engine)) + list(_mixed_rows(engine))
    values = np.array(rows, np.float64).T
    source = f"{PACKAGE} {package_version()} {system} {full_model}"
    return MeasuredSteps(
        group_name(system, _short(full_model), tp, precision),
        **dict(zip(NUMBER_COLUMNS, values, strict=True)),
        sources=(source,),
    )


def package_version() -> str:
    """Return the version of the installed package.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise MissingExtraError("profiles", PACKAGE) from None


def _known_system(gpu: str) -> str:
    package_version()
    folder = resources.files(_MODULE) / "systems"
    names = {one.name[:-5] for one in folder.iterdir() if one.name.endswith("_sxm.yaml")}
    names |= {one.name for one in (folder / "data").iterdir()}
    wanted = slug(gpu).replace("-", "_")
    if wanted in names:
        return wanted
    raise ConfigError(
        f"aiconfigurator has no GPU {gpu!r}.{did_you_mean(wanted, names)} Known: "
        f"{', '.join(sorted(names))}"
    )


def _known_model(model: str) -> str:
    ending = "_config.json"
    files = (resources.files(_MODULE) / "model_configs").iterdir()
    names = sorted(
        one.name.removesuffix(ending).replace("--", "/", 1)
        for one in files
        if one.name.endswith(ending) and "quant_config" not in one.name
    )
    wanted = slug(model.split("/")[-1])
    for name in names:
        if model == name or wanted.removeprefix("meta-") == _short(name):
            return name
    short_names = {_short(name): name for name in names}
    near = difflib.get_close_matches(wanted, list(short_names), n=5, cutoff=0.3)
    raise ConfigError(
        f"aiconfigurator has no model {model!r}; nearest of its {len(names)}: "
        f"{', '.join(short_names[one] for one in near) or 'none'}"
    )


def _short(model: str) -> str:
    """Return a model's name as presets spell it."""
    return slug(model.split("/")[-1]).removeprefix("meta-")


def _engine(system: str, model: str, tp: int, precision: AicPrecision) -> Any:
    engine_handle = importlib.import_module(f"{_MODULE}.sdk.engine").EngineHandle
    with _quiet():
        try:
            engine = engine_handle.compile(
                model,
                system,
                _BACKEND,
                tp_size=tp,
                gemm_quant_mode="fp8" if precision == "fp8" else None,
            )
            engine.decode_step_latency(1, _CONTEXTS[0], 2)
        except Exception as error:  # the package raises many kinds, its own and Rust's
            raise ConfigError(
                f"aiconfigurator has no {_BACKEND} data of {model} in {precision} on {system} with "
                f"tp {tp}: {' '.join(str(error).split())}. GPUs with {_BACKEND} data: "
                f"{', '.join(_systems_with_data())}"
            ) from None
    return engine


def _systems_with_data() -> list[str]:
    data = resources.files(_MODULE) / "systems" / "data"
    return sorted(one.name for one in data.iterdir() if (one / "attention" / _BACKEND).is_dir())


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the package's notes about data of other models."""
    logger = logging.getLogger(_MODULE)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _decode_rows(engine: Any) -> Iterator[tuple[float, ...]]:
    for n, context in itertools.product(_SEQUENCES, _CONTEXTS):
        if n * context <= _MOST_CONTEXT_TOKENS:
            yield n, context, 0, 0, engine.decode_step_latency(n, context, 2)


def _prefill_rows(engine: Any) -> Iterator[tuple[float, ...]]:
    for chunk, past in itertools.product(_CHUNKS, _PASTS):
        yield 0, 0, chunk, past, engine.predict_prefill_latency(1, past + chunk, past)


def _mixed_rows(engine: Any) -> Iterator[tuple[float, ...]]:
    context_ms = {
        (chunk, past): _context_attention_ms(engine, chunk, past)
        for chunk, past in itertools.product(_MIXED_CHUNKS, _MIXED_PASTS)
    }
    for n, context in itertools.product(_MIXED_SEQUENCES, _MIXED_CONTEXTS):
        if n * context > _MOST_CONTEXT_TOKENS:
            continue
        generation_ms = _attention_ms(engine.decode_step_per_op(n, context, 2))
        for chunk in _MIXED_CHUNKS:
            shared_ms = engine.mixed_step_breakdown(chunk, n, chunk, 2)[1]
            for past in _MIXED_PASTS:
                total_ms = shared_ms + context_ms[chunk, past] + generation_ms
                yield n, context, chunk, past, total_ms


def _context_attention_ms(engine: Any, chunk: int, past: int) -> float:
    context_ops, _ = engine.run_static_per_op(
        batch_size=1, isl=past + chunk, osl=2, prefix=past, mode="static_ctx"
    )
    return _attention_ms(context_ops)


def _attention_ms(operations: list[tuple[Any, ...]]) -> float:
    found = [one[1] for one in operations if one[0].endswith("_attention")]
    if not found:
        raise ConfigError(
            "aiconfigurator composes this model of other kinds of attention; a table is made of "
            "models with grouped-query attention"
        )
    return sum(found)
