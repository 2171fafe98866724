"""Models small enough to compare with a dense reference many times."""

from __future__ import annotations

from sched_env.executor.shapes import ModelShape

TINY = ModelShape("tiny", 2, 48, 80, 6, 2, 8, 61)
TINY_TIED = ModelShape("tiny-tied", 3, 32, 64, 4, 4, 16, 37, tied=True)
# Flash attention on CUDA asks for bfloat16 and a head_dim that is a multiple of 8.
SMALL = ModelShape("small", 3, 128, 256, 8, 2, 32, 101)
