"""What the last step of an episode tells about it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from sched_env.engine.world import World
from sched_env.metrics.summary import summarize
from sched_env.simulator.result import read_result

SUCCESS_GOODPUT = 0.9
"""An episode succeeds (``is_success``) from this weighted goodput on."""


def episode_info(world: World, index: int) -> dict[str, Any]:
    """Return the metrics of the episode that server ``index`` has just ended.

    They count the requests whose fate is known: ended, or past their deadline. A truncated episode
    leaves others behind, which would otherwise count as missed.
    """
    state = world.state[index]
    arrived = int(state["next_row"])
    result = read_result(world, index, arrived, int(state["decisions"]), 0)
    ended = ~np.isnan(result.requests["finish_s"]) | (result.requests["missed"] > 0)
    settled = dataclasses.replace(result, requests=result.requests[ended])
    info = {
        name: value
        for name, value in summarize(settled).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    info["num_arrived"] = arrived
    info["load"] = float(state["load"])
    info["is_success"] = bool(info.get("goodput_weighted", 0.0) >= SUCCESS_GOODPUT)
    return info
