"""Compare policies: the grid of simulations, its statistics, tables and reports."""

from __future__ import annotations
