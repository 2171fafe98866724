"""How much memory servers need, and whether the machine has it."""

from __future__ import annotations

from collections.abc import Mapping

from sched_env.engine.queue_records import PLACE, WAITER
from sched_env.engine.records import BLOCK, ENTRY, REQUEST, SEAT
from sched_env.errors import ConfigError
from sched_env.hardware import memory_bytes


def check_room(num_servers: int, settings: Mapping[str, float], row_capacity: int) -> None:
    """Refuse servers that this machine's memory cannot hold.

    It counts what grows with them; traces, logs of events and tables of hashes come on top.

    Raises:
        ConfigError: They need more than the machine has.
    """
    seats = min(int(settings["max_num_seqs"]), row_capacity)
    slots = int(settings.get("num_waiting_slots", 0)) + int(settings.get("num_running_slots", 0))
    every_row = row_capacity * int(settings.get("preemptive_priority", 0))
    num_bytes = num_servers * (
        row_capacity * REQUEST.itemsize
        + seats * SEAT.itemsize
        + (slots + every_row) * (WAITER.itemsize + PLACE.itemsize)
        + (4 * row_capacity + seats) * ENTRY.itemsize
        + (int(settings["block_size"]) + 2 * seats) * 8
        + int(settings.get("enable_prefix_caching", 0))
        * int(settings["num_blocks"])
        * (8 * seats + BLOCK.itemsize)
    )
    if num_bytes > memory_bytes():
        raise ConfigError(
            f"{num_servers} server(s) of {row_capacity} requests, block_size "
            f"{int(settings['block_size'])} and {slots} slots need {num_bytes / 2**30:,.0f} GiB "
            f"of memory, more than the {memory_bytes() / 2**30:,.0f} GiB here: give fewer "
            "environments, a shorter episode (horizon_s, max_requests), a smaller block_size or "
            "fewer slots"
        )
