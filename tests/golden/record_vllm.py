"""Record what the unmodified scheduler of vLLM decides, step by step, in the form of README.md.

``python -m tests.golden.record_vllm OUT_DIR WORKLOAD.json ...`` reads ``settings`` and ``requests``
of each file (a log is a workload too) and writes a log of the same name, except where the scheduler
livelocks. It needs the package ``vllm`` 0.33.0, whose scheduler is plain Python: no GPU is needed.
There is no model: the sampled tokens are scripted.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

END_TOKEN = 0
# Tokens of one request's output: no prompt and no other request has one of them.
OUTPUT_TOKENS = 1 << 40
OUTPUT_TOKENS_PER_REQUEST = 1 << 20

SCHEDULER_SETTINGS = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "policy",
    "scheduler_reserve_full_isl",
    "watermark",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "max_num_active_seqs",
    "prefill_schedule_interval",
)
OTHER_SETTINGS = (
    "num_gpu_blocks",
    "block_size",
    "max_model_len",
    "async_scheduling",
    "enable_prefix_caching",
    "hash_block_tokens",
)


class NoEndError(RuntimeError):
    """The scheduler was given more steps than any sound run of the workload needs."""


@dataclass
class Batch:
    """One scheduled batch in flight, with the ids of the requests that sample a token in it."""

    output: SchedulerOutput
    samples: set[str]


@dataclass
class Recording:
    """What is known of each request so far; ``final`` of a log, in its order."""

    num_outputs: list[int]
    num_preemptions: list[int]
    first_step: list[int | None]
    last_step: list[int | None]
    reason: list[str | None]
    steps: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, num_requests: int) -> Recording:
        nothing = [None] * num_requests
        zeros = [0] * num_requests
        return cls([*zeros], [*zeros], [*nothing], [*nothing], [*nothing])

    def final(self) -> list[list[Any]]:
        columns = (
            self.first_step,
            self.last_step,
            self.num_outputs,
            self.num_preemptions,
            self.reason,
        )
        return [list(row) for row in zip(*columns, strict=True)]


def model_folder() -> Path:
    """Write the description of a small text model; no weights are ever loaded."""
    folder = Path(tempfile.mkdtemp(prefix="scripted-model-"))
    description = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1 << 24,
        "vocab_size": 256,
    }
    (folder / "config.json").write_text(json.dumps(description))
    return folder


def make_config(settings: dict[str, Any], model: Path) -> VllmConfig:
    unknown = set(settings) - set(SCHEDULER_SETTINGS) - set(OTHER_SETTINGS)
    if unknown:
        raise ValueError(f"settings that are not recorded: {sorted(unknown)}")
    model_config = ModelConfig(
        model=str(model),
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=settings["max_model_len"],
    )
    scheduler_config = SchedulerConfig(
        max_model_len=settings["max_model_len"],
        is_encoder_decoder=False,
        async_scheduling=settings.get("async_scheduling", False),
        **{name: settings[name] for name in SCHEDULER_SETTINGS if name in settings},
    )
    caching = settings.get("enable_prefix_caching", False)
    cache_config = CacheConfig(block_size=settings["block_size"], enable_prefix_caching=caching)
    config = VllmConfig(
        model_config=model_config,
        scheduler_config=scheduler_config,
        cache_config=cache_config,
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )
    check_config(config, settings)
    config.cache_config.num_gpu_blocks = settings["num_gpu_blocks"]
    return config


def check_config(config: VllmConfig, settings: dict[str, Any]) -> None:
    """Make sure that vLLM took every setting as it stands."""
    taken = config.scheduler_config
    wrong = {n for n in SCHEDULER_SETTINGS if n in settings and getattr(taken, n) != settings[n]}
    wrong |= {
        name
        for name, value in {
            "async_scheduling": taken.async_scheduling,
            "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        }.items()
        if value != settings.get(name, False)
    }
    if config.cache_config.block_size != settings["block_size"]:
        wrong.add("block_size")
    if wrong:
        raise ValueError(f"vLLM changed the settings {sorted(wrong)}")


def make_scheduler(settings: dict[str, Any], model: Path) -> Any:
    config = make_config(settings, model)
    spec = FullAttentionSpec(
        block_size=settings["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    kv_cache = KVCacheConfig(
        num_blocks=settings["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=settings["block_size"],
        log_stats=False,
    )


def prompt_tokens(index: int, row: list[Any], block_tokens: int) -> list[int]:
    """Return a prompt: its content from the seventh element's ids, or shared with nobody."""
    length = row[1]
    if len(row) < 7:
        start = OUTPUT_TOKENS + (2 * index + 1) * OUTPUT_TOKENS_PER_REQUEST
        return list(range(start, start + length))
    ids = row[6]
    if len(ids) != -(-length // block_tokens):
        raise ValueError(f"request {index}: {len(ids)} ids for {length} tokens of {block_tokens}")
    return [1 + ids[k // block_tokens] * block_tokens + k % block_tokens for k in range(length)]


def make_request(index: int, row: list[Any], settings: dict[str, Any], hasher: Any) -> Request:
    params = SamplingParams(max_tokens=row[2], temperature=0.0)
    params.update_from_generation_config({}, END_TOKEN)
    return Request(
        # vLLM breaks the last tie of its queue by the id's text: it must order as the index does.
        request_id=f"{index:06d}",
        prompt_token_ids=prompt_tokens(index, row, settings.get("hash_block_tokens", 512)),
        sampling_params=params,
        pooling_params=None,
        arrival_time=row[5],
        priority=row[4],
        block_hasher=hasher,
    )


class Recorder:
    """One run of vLLM's scheduler over a workload."""

    def __init__(self, workload: dict[str, Any], model: Path) -> None:
        self.settings = workload["settings"]
        self.rows = workload["requests"]
        self.scheduler = make_scheduler(self.settings, model)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.caching = self.settings.get("enable_prefix_caching", False)
        self.hasher = None
        if self.caching:
            init_none_hash(sha256)
            self.hasher = get_request_block_hasher(self.settings["block_size"], sha256)
        self.arrivals = deque(
            sorted(range(len(self.rows)), key=lambda index: (self.rows[index][0], index))
        )
        self.in_flight: deque[Batch] = deque()
        self.recording = Recording.of(len(self.rows))

    def run(self, max_steps: int | None = None) -> dict[str, Any]:
        """Run to the end and return the log's ``final`` and ``steps``.

        Raises:
            NoEndError: After ``max_steps`` engine calls something is still unfinished.
        """
        limit = max_steps or step_limit(self.rows)
        depth = 2 if self.settings.get("async_scheduling", False) else 1
        step = 0
        while self.arrivals or self._num_unfinished() or self.in_flight:
            if not self._num_unfinished() and not self.in_flight:
                step = max(step, self.rows[self.arrivals[0]][0])
            if len(self.recording.steps) >= limit:
                raise NoEndError(f"no end after {limit} steps")
            self._add_arrivals(step)
            record: dict[str, Any] = {"t": step}
            scheduled = self._num_unfinished() > 0
            if scheduled:
                self.in_flight.append(self._schedule(record))
                record["fs"] = self._free_blocks()
            if len(self.in_flight) == depth or not scheduled:
                self._update(record)
            record["fu"] = self._free_blocks()
            running, waiting = self.scheduler.get_request_counts()
            record["q"] = [waiting, running]
            self.recording.steps.append(record)
            step += 1
        return {"final": self.recording.final(), "steps": self.recording.steps}

    def _num_unfinished(self) -> int:
        return self.scheduler.get_num_unfinished_requests()

    def _free_blocks(self) -> int:
        return self.pool.get_num_free_blocks()

    def _add_arrivals(self, step: int) -> None:
        while self.arrivals and self.rows[self.arrivals[0]][0] <= step:
            index = self.arrivals.popleft()
            row = self.rows[index]
            self.scheduler.add_request(make_request(index, row, self.settings, self.hasher))

    def _schedule(self, record: dict[str, Any]) -> Batch:
        requests = self.scheduler.requests
        running = {request.request_id for request in self.scheduler.running}
        output = self.scheduler.schedule()
        tokens = output.num_scheduled_tokens
        record["s"] = [int(i) if n == 1 else [int(i), n] for i, n in tokens.items()]
        if output.preempted_req_ids:
            record["p"] = sorted(int(request_id) for request_id in output.preempted_req_ids)
            for index in record["p"]:
                self.recording.num_preemptions[index] += 1
        admitted = [request_id for request_id in tokens if request_id not in running]
        if self.caching and admitted:
            record["h"] = [[int(i), requests[i].num_computed_tokens - tokens[i]] for i in admitted]
        samples = {i for i in tokens if not requests[i].is_prefill_chunk}
        return Batch(output, samples)

    def _update(self, record: dict[str, Any]) -> None:
        batch = self.in_flight.popleft()
        ids = list(batch.output.num_scheduled_tokens)
        before = {i: self.scheduler.requests[i] for i in ids if i in self.scheduler.requests}
        counts = {i: request.num_output_tokens for i, request in before.items()}
        sampled = [[self._token(int(i))] if i in batch.samples else [] for i in ids]
        self.scheduler.update_from_output(
            batch.output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={i: k for k, i in enumerate(ids)},
                sampled_token_ids=sampled,
            ),
        )
        ended = []
        for request_id, request in before.items():
            index = int(request_id)
            self.recording.num_outputs[index] = request.num_output_tokens
            if request.num_output_tokens and not counts[request_id]:
                self.recording.first_step[index] = record["t"]
            if request.is_finished():
                ended.append(index)
                self.recording.last_step[index] = record["t"]
                self.recording.reason[index] = str(request.get_finished_reason())
        if ended:
            record["f"] = sorted(ended)

    def _token(self, index: int) -> int:
        """Return the next output token of a request."""
        count = self.recording.num_outputs[index] + 1
        if count == self.rows[index][3]:
            return END_TOKEN
        return OUTPUT_TOKENS + 2 * index * OUTPUT_TOKENS_PER_REQUEST + count


def step_limit(rows: list[list[Any]]) -> int:
    """Return more engine calls than a workload of these requests needs without a livelock."""
    return 1000 + sum(row[1] + 4 * row[2] for row in rows)


def record(workload: dict[str, Any], model: Path, max_steps: int | None = None) -> dict[str, Any]:
    """Return the log of a workload.

    Raises:
        NoEndError: The scheduler livelocks on it.
    """
    settings = workload["settings"]
    is_async = settings.get("async_scheduling", False)
    return {
        "name": workload["name"],
        "engine": "vllm_async" if is_async else "vllm",
        "version": f"vllm {vllm.__version__}",
        "settings": settings,
        "requests": workload["requests"],
        **Recorder(workload, model).run(max_steps),
    }


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def log_text(log: dict[str, Any]) -> str:
    """Return a log's file: one step a line."""
    head = compact({name: value for name, value in log.items() if name != "steps"})
    steps = ",\n".join(compact(step) for step in log["steps"])
    return f'{head[:-1]},"steps":[\n{steps}\n]}}\n'


def main() -> None:
    out, *paths = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    model = model_folder()
    for path in paths:
        try:
            log = record(json.loads(path.read_text()), model)
        except NoEndError as error:
            print(f"{path}: {error}, left out", file=sys.stderr)
        else:
            (out / path.name).write_text(log_text(log))


if __name__ == "__main__":
    main()
