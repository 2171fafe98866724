"""An RL environment for LLM inference scheduling, faithful to vLLM's scheduler."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
