"""Real decode steps: a Llama-shaped model with random weights and a paged KV cache.

It is profiled (``sched-env profile run``), or it runs the batches of a policy and its measured step
times move the clock (``evaluate --executor torch``). Importing this package leaves torch out.
"""

from __future__ import annotations

from sched_env.executor.shapes import SHAPES, ModelShape, shape_of

__all__ = ["SHAPES", "ModelShape", "shape_of"]
