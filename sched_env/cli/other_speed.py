"""How fast others simulate the same workload: the package ``sched-sim``, where there is one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from statistics import median

from sched_env.cli.speed import Speed
from sched_env.errors import SchedEnvError
from sched_env.workload import RequestTable

# It runs where sched_env need not be installed, and reads "arrival prompt output" line by line. The
# A100 is the largest of its servers with room for a KV cache: its H100 holds a model of 141 GB.
_RUN_SCHED_SIM = """
import sys, time
from sched_sim.core.event_engine import Simulator
from sched_sim.core.request import Request
from sched_sim.hardware.presets import get_hardware_profile
from sched_sim.schedulers.factory import create_scheduler

rows = [line.split() for line in sys.stdin]
requests = [
    Request(request_id=str(i), arrived_at=float(a), prompt_tokens=int(p), output_tokens=int(o))
    for i, (a, p, o) in enumerate(rows)
]
server = get_hardware_profile("a100")
started_s = time.process_time()
run = Simulator(server, create_scheduler("fcfs", server, token_budget=2048, max_batch_size=64))
run.submit_workload(requests)
run.run()
print(len(requests) / (time.process_time() - started_s))
"""


def has_sched_sim() -> bool:
    """Tell whether ``sched-sim`` is installed next to sched_env."""
    return find_spec("sched_sim") is not None


def check_sched_sim(python: str) -> None:
    """Refuse an interpreter that cannot import ``sched-sim``.

    Raises:
        SchedEnvError: It cannot, or is none.
    """
    _output([python, "-c", "import sched_sim"], "", python)


def sched_sim(table: RequestTable, python: str, repeats: int) -> Speed:
    """Measure ``sched-sim`` under fcfs on its A100, in processes of its own.

    Args:
        table: What arrives.
        python: An interpreter that can import it.
        repeats: Measurements of which the median counts.

    Raises:
        SchedEnvError: A process failed.
    """
    columns = table.arrival_time_s, table.prompt_tokens, table.output_tokens
    lines = [f"{a} {p} {o}" for a, p, o in zip(*columns, strict=True)]
    rates = tuple(_rate(lines, python) for _ in range(repeats))
    name = f"{table.source.name}, {len(table):,} requests, fcfs, sched-sim"
    return Speed(name, "requests", median(rates), max(rates), rates)


def _rate(lines: Sequence[str], python: str) -> float:
    return float(_output([python, "-c", _RUN_SCHED_SIM], "\n".join(lines), python))


def _output(command: list[str], text: str, python: str) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=text)
    except OSError as fault:
        raise SchedEnvError(f"--sched-sim-python {python}: {fault.strerror}") from fault
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise SchedEnvError(f"sched-sim failed under {python}: {reason[0]}")
    return done.stdout
