"""Draw workloads on which the scheduler's rules matter, to be recorded or replayed.

``python -m tests.golden.random_workloads OUT_DIR [--count N] [--first SEED] [--async] [--prefix]``
writes ``settings`` and ``requests`` of one workload a file, in the form of README.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

# Most requests, and the longest prompt and output in tokens.
SIZES = {
    "tiny": (12, 24, 12),
    "small": (40, 80, 40),
    "medium": (90, 300, 60),
    "long": (24, 2400, 90),
}


def draw_workload(seed: int, is_async: bool = False, prefix: bool = False) -> dict[str, Any]:
    """Return the workload of a seed: any switches, little memory, and much to do."""
    rng = np.random.default_rng([seed, is_async, prefix])
    size = str(rng.choice(list(SIZES), p=[0.4, 0.35, 0.15, 0.1]))
    rows = draw_requests(rng, *SIZES[size])
    settings = draw_limits(rng, rows)
    settings |= draw_switches(rng, settings)
    if is_async:
        settings["async_scheduling"] = True
    if prefix:
        settings |= draw_content(rng, rows, settings["block_size"])
    fit_requests(rows, settings)
    engine = ("prefix_" if prefix else "") + ("async" if is_async else "sync")
    return {"name": f"{engine}_{size}_{seed}", "settings": settings, "requests": rows}


def chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def draw_requests(
    rng: np.random.Generator, most: int, longest_prompt: int, longest_output: int
) -> list[list[Any]]:
    """Return rows that arrive in bursts, evenly or all at once."""
    count = int(rng.integers(max(most // 3, 3), most + 1))
    gap = float(rng.choice([0.0, 0.3, 1.0, 3.0]))
    steps = np.cumsum(rng.poisson(gap, count) * (rng.random(count) < 0.6))
    if chance(rng, 0.2):
        steps[count // 2 :] += 40 * longest_output
    classes = int(rng.choice([1, 2, 3, 6]))
    most_urgent = int(rng.choice([0, 0, -3]))
    ends_early = float(rng.choice([0.0, 0.3, 0.8]))
    ties = chance(rng, 0.4)
    shuffled = chance(rng, 0.2)
    rows = []
    for index, step in enumerate(steps.tolist()):
        short = chance(rng, 0.5)
        prompt = int(rng.integers(1, (longest_prompt // 4 if short else longest_prompt) + 1))
        output = int(rng.integers(1, longest_output + 1))
        eos_at = int(rng.integers(1, output + 1)) if chance(rng, ends_early) else 0
        arrival = float(step) if ties else step + 1e-6 * index
        if shuffled:
            arrival = round(float(rng.uniform(0, 5)), 1 if ties else 6)
        priority = most_urgent + int(rng.integers(classes))
        rows.append([step, prompt, output, eos_at, priority, arrival])
    return rows


def draw_limits(rng: np.random.Generator, rows: list[list[Any]]) -> dict[str, Any]:
    """Return budgets that hold a few of the requests at a time."""
    lengths = [row[1] + row[2] for row in rows]
    block_size = int(rng.choice([1, 2, 4, 8, 16, 32]))
    tight = chance(rng, 0.3)
    max_model_len = int(np.quantile(lengths, 0.7)) + 2 if tight else max(lengths) + 1
    held_tokens = float(rng.uniform(1.0, 5.0)) * float(np.mean(lengths)) + 2 * block_size
    usable = max(-(-max_model_len // block_size), int(held_tokens / block_size))
    max_num_seqs = int(rng.choice([2, 4, 8, 16, 32]))
    per_seq = float(rng.choice([1.0, 1.5, 3.0, 8.0]))
    budget = max(max_num_seqs, 4, int(per_seq * max_num_seqs), max(lengths) // 16)
    return {
        "max_num_batched_tokens": budget,
        "max_num_seqs": max_num_seqs,
        "num_gpu_blocks": usable + 1,
        "block_size": block_size,
        "policy": "priority" if chance(rng, 0.5) else "fcfs",
        "max_model_len": max_model_len,
    }


def draw_switches(rng: np.random.Generator, limits: dict[str, Any]) -> dict[str, Any]:
    """Return any combination of the other rules."""
    switches: dict[str, Any] = {}
    longest = limits["max_model_len"]
    if chance(rng, 0.4):
        switches["scheduler_reserve_full_isl"] = False
    if chance(rng, 0.3):
        switches["watermark"] = float(rng.choice([0.01, 0.03, 0.05, 0.1, 0.2]))
    if chance(rng, 0.35):
        cap = int(rng.choice([1, 2, 3, 5, 8, 16, 33]))
        switches["long_prefill_token_threshold"] = min(cap, longest)
        if chance(rng, 0.4):
            switches["long_prefill_token_threshold_adaptive"] = True
    if chance(rng, 0.15):
        switches["enable_chunked_prefill"] = False
        switches["max_num_batched_tokens"] = max(
            limits["max_num_batched_tokens"], longest + int(rng.integers(0, 9))
        )
    if chance(rng, 0.2):
        switches["max_num_active_seqs"] = int(rng.integers(1, limits["max_num_seqs"] + 1))
    if chance(rng, 0.3):
        switches["prefill_schedule_interval"] = int(rng.choice([2, 3, 4, 7]))
    return switches


def draw_content(rng: np.random.Generator, rows: list[list[Any]], size: int) -> dict[str, Any]:
    """Give each prompt the ids of its content: shared beginnings, conversations that go on."""
    block_tokens = draw_block_tokens(rng, size)
    fresh = itertools.count()
    anywhere = chance(rng, 0.15)
    opening = [next(fresh) for _ in range(int(rng.integers(0, 6)))]
    told: list[list[int]] = [opening]
    sharing = float(rng.choice([0.3, 0.7, 0.95]))
    unknown = float(rng.choice([0.0, 0.0, 0.3]))
    for row in rows:
        if chance(rng, unknown):
            continue
        count = -(-row[1] // block_tokens)
        parent = told[int(rng.integers(len(told)))] if chance(rng, sharing) else []
        kept = parent[: int(rng.integers(len(parent) + 1))] if chance(rng, 0.3) else parent
        ids = kept[:count]
        while len(ids) < count:
            old = anywhere and chance(rng, 0.5)
            ids.append(int(rng.choice(told[-1])) if old and told[-1] else next(fresh))
        told.append(ids)
        row.append(ids)
    return {"enable_prefix_caching": True, "hash_block_tokens": block_tokens}


def draw_block_tokens(rng: np.random.Generator, block_size: int) -> int:
    """Return the tokens of one id: 512 as in public traces, or near the KV block's."""
    if chance(rng, 0.2):
        return 512
    if chance(rng, 0.2):
        return max(block_size // 2, 1)
    return block_size * int(rng.choice([1, 1, 2, 4]))


def fit_requests(rows: list[list[Any]], settings: dict[str, Any]) -> None:
    """Shorten prompts to what vLLM takes: room for one output token."""
    block_tokens = settings.get("hash_block_tokens", 1)
    for row in rows:
        row[1] = min(row[1], settings["max_model_len"] - 1)
        row[6:] = [ids[: -(-row[1] // block_tokens)] for ids in row[6:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--async", dest="is_async", action="store_true")
    parser.add_argument("--prefix", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.first, args.first + args.count):
        workload = draw_workload(seed, args.is_async, args.prefix)
        (args.out / f"{workload['name']}.json").write_text(json.dumps(workload))


if __name__ == "__main__":
    main()
