"""A scheduler's configuration from the arguments of ``vllm serve``.

Flags are read as vLLM 0.33.0 reads them (vllm/engine/arg_utils.py): dashes or underscores, a value
behind a space or ``=``, ``--no-`` before a switch, ``8k`` for 8,000 and ``8K`` for 8,192;
decimals go with the small letters alone, as in ``1.5k``.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from sched_env.errors import ConfigError

_COUNTS = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "block_size": "block_size",
    "max_model_len": "max_model_len",
    "max_num_active_seqs": "max_num_active_seqs",
    "long_prefill_token_threshold": "long_prefill_token_threshold",
    "prefill_schedule_interval": "prefill_schedule_interval",
    "num_gpu_blocks_override": "num_blocks",
}
_SWITCHES = {
    "enable_chunked_prefill": "enable_chunked_prefill",
    "enable_prefix_caching": "enable_prefix_caching",
    "async_scheduling": "async_scheduling",
    "scheduler_reserve_full_isl": "reserve_full_isl",
    "long_prefill_token_threshold_adaptive": "long_prefill_token_threshold_adaptive",
}
_OTHERS = {"scheduling_policy": "policy", "watermark": "watermark"}
_KNOWN = {**_COUNTS, **_SWITCHES, **_OTHERS}

# What vLLM does where a flag is not given and our own default differs. The budgets are those of
# its API server on a GPU below 70 GiB; it takes larger ones on larger GPUs.
_VLLM_DEFAULTS: dict[str, Any] = {
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 256,
    "block_size": 16,
    "async_scheduling": True,
    "enable_prefix_caching": True,
}

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_MULTIPLES = {
    **{letter: 1000 ** (i + 1) for i, letter in enumerate("kmgt")},
    **{letter: 1024 ** (i + 1) for i, letter in enumerate("KMGT")},
}


def read_vllm_args(
    args: str | Sequence[str] | Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields that ``vllm serve`` arguments set, and the flags that we do not model.

    Args:
        args: A command line, its words, or its flags as a mapping.

    Returns:
        Field values, vLLM's defaults included, and the names of all other flags as given.

    Raises:
        ConfigError: A flag of ours has no value or one that is not allowed, or is misspelt.
    """
    given = _as_flags(args)
    fields, others = dict(_VLLM_DEFAULTS), []
    for flag, value in given.items():
        name = _known_name(flag)
        if name is None:
            others.append(flag)
        elif name in _COUNTS:
            count = _as_count(flag, value)
            if name == "num_gpu_blocks_override":
                count -= 1  # vLLM keeps block 0 for itself
            if count >= 0:
                fields[_COUNTS[name]] = count
        elif name in _SWITCHES:
            fields[_SWITCHES[name]] = _as_switch(flag, value)
        else:
            fields[_OTHERS[name]] = _as_number(flag, value) if name == "watermark" else value
    return fields, tuple(others)


def _as_flags(args: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(args, Mapping):
        return {f"--{str(key).lstrip('-').replace('_', '-')}": args[key] for key in args}
    words = shlex.split(args) if isinstance(args, str) else [str(word) for word in args]
    flags: dict[str, Any] = {}
    flag = None
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-\d.*", word):
            flag, _, value = word.partition("=")
            flags[flag] = value if "=" in word else None
        elif flag is not None and flags[flag] is None and _may_be_value(flag, word):
            flags[flag] = word
    return flags


def _may_be_value(flag: str, word: str) -> bool:
    """Tell whether a word behind a flag is its value: behind a switch stands the model, too."""
    name = flag.lstrip("-").replace("-", "_")
    return name.removeprefix("no_") not in _SWITCHES or word.lower() in _TRUTHS


def _known_name(flag: str) -> str | None:
    """Return the name of a flag that we model.

    Raises:
        ConfigError: It is almost one, and so a slip of the pen.
    """
    name = flag.lstrip("-").replace("-", "_")
    if name.startswith("no_") and name[3:] in _SWITCHES:
        return name[3:]
    if name in _KNOWN:
        return name
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.9)
    if near:
        raise ConfigError(f"no flag {flag}. Did you mean --{near[0].replace('_', '-')}?")
    return None


def _as_count(flag: str, value: Any) -> int:
    text = "" if value is None or isinstance(value, bool) else str(value).strip()
    if text in ("-1", "auto") and flag.endswith("len"):
        return -1  # whatever the model allows: no limit here
    match = re.fullmatch(r"(\d+(?:\.\d+(?=[kmgt]))?)([kmgtKMGT]?)", text)
    count = Fraction(match[1]) * _MULTIPLES.get(match[2], 1) if match else None
    if count is None or count.denominator != 1:
        raise ConfigError(f"{flag} is {value!r}: give a whole number, such as 2048, 8k or 1.5k")
    return int(count)


def _as_number(flag: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{flag} is {value!r}: give a number, such as 0.01") from None


def _as_switch(flag: str, value: Any) -> bool:
    is_no = flag.lstrip("-").startswith("no")
    truth = True if value is None else _TRUTHS.get(str(value).lower())
    if truth is None:
        raise ConfigError(f"{flag} is {value!r}: give true or false, or the flag alone")
    return is_no != truth
