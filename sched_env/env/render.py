"""Pictures of a server: a text screen and a Gantt frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.engine.records import FINISHED, STATUS_NAMES
from sched_env.engine.world import World
from sched_env.errors import MissingExtraError

_WINDOW_S = 30.0
_ROWS = 60
_BAR_WIDTH = 30


def draw_text(world: World, index: int) -> str:
    """Return one screen: clock, KV use, and the first waiting and running requests."""
    state = world.state[index]
    used = int(state["num_blocks"]) - int(state["free_blocks"])
    share = used / int(state["num_blocks"])
    filled = round(share * _BAR_WIDTH)
    bar = "#" * filled + "." * (_BAR_WIDTH - filled)
    lines = [
        f"clock {float(state['clock_s']):9.3f} s   load {float(state['load']):.2f}   "
        f"iteration {int(state['iteration'])}",
        f"KV [{bar}] {used}/{int(state['num_blocks'])} blocks",
        f"running {int(state['num_running'])}/{int(state['max_num_seqs'])}   waiting "
        f"{int(state['num_waiting'])}   finished {int(state['num_finished'])}   rejected "
        f"{int(state['num_rejected'])}   preemptions {int(state['num_preemptions'])}",
    ]
    for part, shown in (("front", world.layout.num_waiting_slots), ("running", 8)):
        requests = world.live(index, part)
        picked = requests[:shown] if part == "front" else requests[::-1][:shown]
        lines += ["", "waiting" if part == "front" else "running (last of the batch first)"]
        lines += [_line(request, float(state["clock_s"])) for request in picked] or ["  none"]
    return "\n".join(lines)


def _line(request: Any, clock_s: float) -> str:
    length = int(request["prompt_tokens"]) + int(request["num_output_tokens"])
    due_s = float(request["arrival_time_s"]) + float(request["ttft_slo_s"]) - clock_s
    return (
        f"  #{int(request['row']):<6d} {STATUS_NAMES[int(request['status'])]:<9s} weight "
        f"{float(request['weight']):4.1f}  computed {int(request['num_computed_tokens']):>6d}/"
        f"{length:<6d} output {int(request['num_output_tokens']):>5d}  "
        f"first token due {due_s:+7.2f} s"
    )


def draw_timeline(world: World, index: int) -> NDArray[np.uint8]:
    """Return a Gantt frame of the last seconds, uint8 (height, width, 3).

    Each row is a request: grey while it waits, orange during prefill, blue while it decodes.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("agents", "matplotlib") from error
    figure = Figure(figsize=(8, 5), dpi=80)
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    now_s = float(world.state[index]["clock_s"])
    for row, request in enumerate(_recent(world, index, now_s)):
        _draw_bar(axes, row, request, now_s)
    axes.set_xlim(now_s - _WINDOW_S, now_s)
    axes.set_ylim(_ROWS, -1)
    axes.set_xlabel("simulated time [s]")
    axes.set_ylabel("requests, latest arrivals last")
    axes.set_yticks([])
    figure.tight_layout()
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _recent(world: World, index: int, now_s: float) -> NDArray[Any]:
    """Return the last requests that were alive within the window, as they stand."""
    requests = world.requests[index, : int(world.state[index]["next_row"])].copy()
    for part in ("front", "admitted", "running"):
        for request in world.live(index, part):
            requests[request["row"]] = request
    ended_s = np.where(np.isnan(requests["finish_s"]), now_s, requests["finish_s"])
    return requests[ended_s >= now_s - _WINDOW_S][-_ROWS:]


def _draw_bar(axes: Any, row: int, request: Any, now_s: float) -> None:
    def until(value: float) -> float:
        return now_s if np.isnan(value) else float(value)

    end_s = until(request["finish_s"])
    started_s = min(until(request["first_scheduled_s"]), end_s)
    token_s = min(until(request["first_token_s"]), end_s)
    spans = [
        (float(request["arrival_time_s"]), started_s, "0.8"),
        (started_s, token_s, "tab:orange"),
        (token_s, end_s, "tab:blue"),
    ]
    for start_s, stop_s, colour in spans:
        axes.barh(row, stop_s - start_s, left=start_s, height=0.8, color=colour)
    if not np.isnan(request["finish_s"]) and request["status"] != FINISHED:
        axes.plot([end_s], [row], "rx", markersize=4)
