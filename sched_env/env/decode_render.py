"""Pictures of the teaching machine: a text screen and a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.decode_machine import PHASE_NAMES, PREFILL
from sched_env.engine.decode_world import DecodeWorld
from sched_env.engine.records import FINISHED, PREEMPTED, RUNNING, STATUS_NAMES

_CELL = 12  # pixels
_LEFT = (225, 225, 225)
_COLOURS = {RUNNING: (49, 116, 173), PREEMPTED: (222, 143, 5), FINISHED: (60, 145, 90)}


def draw_decode_text(world: DecodeWorld, index: int) -> str:
    """Return one screen: clock, blocks, and each request that has arrived."""
    state = world.state[index]
    total, free = int(state["kv_blocks"]), int(state["free_kv_blocks"])
    lines = [
        f"clock {int(state['clock'])}   KV [{'#' * (total - free)}{'.' * free}] "
        f"{total - free}/{total} blocks   done {int(state['num_done'])}/"
        f"{int(state['num_requests'])}   preemptions {int(state['num_preemptions'])}"
    ]
    arrived = world.requests(index)[: int(state["num_arrived"])]
    return "\n".join([*lines, *(_line(request) for request in arrived)])


def _line(request: Any) -> str:
    due = f"due {int(request['deadline_step'])}" if request["has_deadline"] else "no deadline"
    return (
        f"  #{int(request['request_id']):<3d} {STATUS_NAMES[int(request['status'])]:<9s} "
        f"{PHASE_NAMES[int(request['phase'])]:<7s} {int(request['generated_len'])}/"
        f"{int(request['max_new_tokens'])} tokens   {int(request['required_blocks'])} blocks   "
        f"priority {int(request['priority'])}   waited {int(request['wait_steps'])}   {due}"
        f"{'   missed' if request['missed'] else ''}"
    )


def draw_decode_image(world: DecodeWorld, index: int) -> NDArray[np.uint8]:
    """Return a frame, uint8 (height, width, 3).

    A row is a request and a cell one of its steps: done ones are blue while it runs, orange while
    it is preempted, green once it has finished.
    """
    requests = world.requests(index)
    width = 1 + int(world.arrays.requests["max_new_tokens"].max())
    frame = np.full((world.arrays.requests.shape[1], width, 3), 255, np.uint8)
    for row, request in enumerate(requests[: int(world.state[index]["num_arrived"])]):
        taken = 0 if request["phase"] == PREFILL else 1 + int(request["generated_len"])
        frame[row, : 1 + int(request["max_new_tokens"])] = _LEFT
        frame[row, :taken] = _COLOURS.get(int(request["status"]), _LEFT)
    return np.kron(frame, np.ones((_CELL, _CELL, 1), np.uint8))
