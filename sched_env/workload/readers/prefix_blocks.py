"""Mooncake and Qwen-Bailian traces: JSON lines whose prompts carry prefix block ids.

Both have ``timestamp, input_length, output_length, hash_ids``. Mooncake counts milliseconds and
blocks of 512 tokens, Qwen float seconds and blocks of 16; a Qwen row also has ``chat_id``. The unit
and the block size belong to the format and are never guessed from the size of a number.
``input_length`` already holds the whole history of a conversation.
"""

from __future__ import annotations

import numpy as np

from sched_env.workload.hash_ids import HashIds
from sched_env.workload.readers.column_source import ColumnSource
from sched_env.workload.readers.faults import fault
from sched_env.workload.readers.json_lines import JsonLines
from sched_env.workload.readers.raw_requests import TICKS_PER_S, RawRequests, ReadOptions
from sched_env.workload.readers.trace_file import TraceFile

COLUMNS = ("input_length", "output_length")


def read_mooncake(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Read a Mooncake trace: integer milliseconds, 512-token blocks.

    Raises:
        TraceError: a missing key, a bad value, or ids that do not match the block size.
    """
    return _read(file, options, name="mooncake", unit="ms", block_tokens=512)


def read_qwen(file: TraceFile, options: ReadOptions) -> RawRequests:
    """Read a Qwen-Bailian trace: float seconds, 16-token blocks.

    Raises:
        TraceError: a missing key, a bad value, or ids that do not match the block size.
    """
    return _read(file, options, name="qwen", unit="s", block_tokens=16)


def _read(
    file: TraceFile, options: ReadOptions, *, name: str, unit: str, block_tokens: int
) -> RawRequests:
    source = JsonLines(file)
    source.require(*COLUMNS)
    prompt_tokens = source.token_counts("input_length")
    return RawRequests(
        format=name,
        arrival=source.times("timestamp") if source.has("timestamp") else None,
        ticks_per_s=TICKS_PER_S[options.time_unit or unit],
        resolution_s=0.0,
        prompt_tokens=prompt_tokens,
        output_tokens=source.token_counts("output_length"),
        hash_ids=block_ids(source, prompt_tokens, options.block_tokens or block_tokens),
    )


def block_ids(
    source: ColumnSource, prompt_tokens: np.ndarray, block_tokens: int, column: str = "hash_ids"
) -> HashIds | None:
    """Return the prefix ids of all rows, or ``None`` if no row has any.

    Raises:
        TraceError: a row without ids among rows with ids, or one whose number of ids is not
            ceil(prompt_tokens / block_tokens).
    """
    if not source.has(column):
        return None
    hash_ids = HashIds.from_lists(source.id_lists(column), block_tokens)
    wanted = -(-prompt_tokens // block_tokens)
    wrong = np.flatnonzero(hash_ids.num_blocks != wanted)
    if len(wrong):
        row = int(wrong[0])
        raise fault(
            source.name,
            source.place(row),
            column,
            f"{hash_ids.num_blocks[row]} ids for {prompt_tokens[row]} prompt tokens, where blocks "
            f"of {block_tokens} tokens need {wanted[row]}",
            "correct the row, or give the file's block_tokens",
        )
    return hash_ids
