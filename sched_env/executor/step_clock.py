"""How long a step takes on a device, and how fast that device reads its memory."""

from __future__ import annotations

import time

import torch

_LEAST_BYTES, _MOST_BYTES = 2**20, 2**30
_REPEATS = 9


class StepClock:
    """Measure one step: device events on CUDA, the processor's counter elsewhere.

    The events frame all that is put on the device between them, and the time in which the device
    waits for the host in between.

    Args:
        device: Where the step runs.
        cpu_time: On a CPU, count only what this process computed, in all its threads: less
            disturbed by other work on a busy machine, and only with one thread a step's duration.
    """

    def __init__(self, device: torch.device, *, cpu_time: bool = False) -> None:
        self._device = device
        self._events = None
        self._started_s = 0.0
        self._now_s = time.process_time if cpu_time else time.perf_counter
        if device.type == "cuda":
            self._events = (
                torch.cuda.Event(enable_timing=True),
                torch.cuda.Event(enable_timing=True),
            )

    def start(self) -> None:
        """Begin a step; the device is idle."""
        if self._events is None:
            self._started_s = self._now_s()
        else:
            self._events[0].record(torch.cuda.current_stream(self._device))

    def stop(self) -> float:
        """Return the seconds since the start, all work on the device included."""
        if self._events is None:
            return self._now_s() - self._started_s
        self._events[1].record(torch.cuda.current_stream(self._device))
        self._events[1].synchronize()
        return self._events[0].elapsed_time(self._events[1]) * 1e-3


def read_bandwidth(device: torch.device, num_bytes: int) -> float:
    """Return the fastest that ``device`` read ``num_bytes`` of memory, in bytes/s.

    A footprint that fits in a cache is read from the cache, as weights of that size are. More than
    1 GiB is as slow as 1 GiB.
    """
    count = min(max(num_bytes, _LEAST_BYTES), _MOST_BYTES) // 4
    numbers = torch.ones(count, device=device)
    copy = torch.empty_like(numbers)
    clock = StepClock(device)
    fastest = 0.0
    for _ in range(_REPEATS):
        clock.start()
        numbers.sum()
        fastest = max(fastest, 4 * count / clock.stop())
        clock.start()
        copy.copy_(numbers)
        fastest = max(fastest, 8 * count / clock.stop())
    return fastest
