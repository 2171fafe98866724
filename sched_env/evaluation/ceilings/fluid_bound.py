r"""An upper bound of weighted goodput: the fluid relaxation as a linear program.

Requests become fluid. Of request i a part y_i in [0, 1] is met; its prefill is spread over the
time bins between its arrival and its TTFT deadline, its decode over those up to the last moment
at which its TPOT SLO can still hold. In each bin the work fits the time, the KV blocks held fit
the pool, and the requests that decode fit the seats::

    max  sum_i w_i y_i / sum_i w_i
    sum_b u_ib = y_i,  sum_b v_ib = y_i                                  parts by bin
    sum_i p_m P_i u_ib + (d_m N_i + s_m C_i) v_ib <= length_b            for each minorant m
    sum_i B_i N_i t v_ib <= num_blocks length_b
    sum_i N_i t v_ib <= max_num_seqs length_b

P_i is the prompt, N_i the output tokens after the first, C_i the context that those read at the
least, B_i the blocks of the prompt and t the shortest decode step. A minorant (p, d, s) is a plane
through the origin below the step time: no step of n decodes over S tokens of context with T tokens
of prefill takes less than p T + d n + s S. Everything is rounded in favour of the scheduler, so
that no schedule exceeds the bound, with true lengths known or not.

Reference: Bertsimas and Tsitsiklis, Introduction to Linear Optimization, 1997 (relaxations);
solved by HiGHS (Huangfu and Hall, 2018) through scipy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sched_env.config import EnvConfig
from sched_env.config.cost import LiveCost
from sched_env.cost.models import cost_record
from sched_env.cost.step_time import step_time_s
from sched_env.errors import ConfigError, MissingExtraError, SchedEnvError

Floats = NDArray[np.float64]

_CONTEXT_SHARES = (0.0, 0.5, 1.0)
_DECODE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_GRID = 24
_TILE_TOKENS = 16
"""Step times may rise in tiles of new tokens; every tile in use is a multiple of this."""

_MOST_VARIABLES = 2_000_000
"""Variables, and bins, beyond which the program would take gigabytes."""

_SAFETY = 0.995
"""For what the step time may do between the points where it is looked at."""


@dataclass(frozen=True)
class FluidBound:
    """The optimum of the relaxation.

    Attributes:
        goodput_weighted: No schedule of these requests on this server exceeds it.
        num_bins: Time bins; more make the bound tighter.
        num_variables: Size of the linear program.
    """

    goodput_weighted: float
    num_bins: int
    num_variables: int


@dataclass(frozen=True)
class Plane:
    """A plane through the origin below the step time.

    Attributes:
        prefill_token_s: Seconds per prefill token.
        decode_s: Seconds per decoding request.
        context_token_s: Seconds per token of context that decodes read.
    """

    prefill_token_s: float
    decode_s: float
    context_token_s: float


def refuse_shared_prefixes(env: EnvConfig) -> None:
    """Refuse a server for which there is no bound.

    Raises:
        ConfigError: It shares prefixes, whose prefill the bound would count twice.
    """
    if env.scheduler.enable_prefix_caching:
        raise ConfigError(
            "the fluid bound counts every prompt in full: set enable_prefix_caching to false, or "
            "ceilings.enabled to false"
        )


def check_size(requests: NDArray[Any], bin_s: float) -> None:
    """Refuse requests whose windows span more time bins than a program can hold.

    Args:
        requests: REQUEST (n,), as `fluid_bound` takes them.
        bin_s: Length of a time bin in seconds.

    Raises:
        ConfigError: There are too many bins, or variables.
    """
    windows = _Windows.of(requests)
    num_bins = windows.span_s / bin_s
    num_variables = len(requests) + windows.total_s / bin_s
    if not max(num_bins, num_variables) <= _MOST_VARIABLES:
        longest = int(windows.decodes.max()) + 1
        raise ConfigError(
            f"the fluid bound would take {num_variables:.3g} variables over {num_bins:.3g} bins of "
            f"{bin_s:g} s, and at most {_MOST_VARIABLES:,} are allowed (the longest output has "
            f"{longest:,} tokens): give a larger ceilings.bin_s, smaller SLOs or shorter requests, "
            "or set ceilings.enabled to false"
        )


def fluid_bound(requests: NDArray[Any], env: EnvConfig, *, bin_s: float = 1.0) -> FluidBound:
    """Return an upper bound of the weighted goodput of any scheduler.

    Args:
        requests: REQUEST (n,), the outcome of any run: arrivals, true lengths, weights and SLOs.
        env: The server.
        bin_s: Length of a time bin in seconds.

    Raises:
        ConfigError: The server shares prefixes, whose prefill the bound would count twice, or the
            bound would take too many variables.
        MissingExtraError: scipy is not installed.
        SchedEnvError: The solver failed.
    """
    refuse_shared_prefixes(env)
    if not bin_s > 0:
        raise ConfigError(f"bin_s is {bin_s:g}: give a length above 0 s")
    check_size(requests, bin_s)
    program = _Program(requests, env, bin_s)
    try:
        from scipy.optimize import linprog
    except ModuleNotFoundError:
        raise MissingExtraError("ceilings", "scipy") from None
    matrix, limits = program.limits()
    equal, sums = program.parts()
    found = linprog(
        -program.objective(), A_ub=matrix, b_ub=limits, A_eq=equal, b_eq=sums, bounds=(0.0, 1.0)
    )
    if found.status != 0:
        raise SchedEnvError(f"the linear program of the fluid bound failed: {found.message}")
    return FluidBound(min(-float(found.fun), 1.0), program.num_bins, program.num_variables)


def _cost_of(env: EnvConfig) -> Any:
    """Return the step-time model of a server, a COST record.

    Raises:
        ConfigError: Its clock is measured, so no model bounds it.
    """
    if isinstance(env.cost, LiveCost):
        raise ConfigError(
            "the fluid bound needs step times by a model: give a cost that is not live"
        )
    return cost_record(env.cost).view(np.recarray)[0]


def planes_below(env: EnvConfig) -> list[Plane]:
    """Return planes through the origin below the step time of a server.

    What a step takes can be charged to its prefill, to its decodes or to their context; each plane
    divides it in another way, and a schedule has to satisfy all of them.
    """
    config = env.scheduler
    cost = _cost_of(env)
    pool_tokens = config.num_blocks * config.block_size
    seats, budget = config.max_num_seqs, config.max_num_batched_tokens
    decodes = np.unique(np.geomspace(1, seats, _GRID).astype(int))
    contexts = np.linspace(0, pool_tokens, 6 * _GRID).astype(int)
    sizes = (*range(_TILE_TOKENS, budget + 1, _TILE_TOKENS), budget)
    mixes = [(n, t - n) for n in (0, *decodes[::3].tolist(), seats) for t in sizes if t > n]

    def step(n: int, context: int, chunk: int) -> float:
        return float(step_time_s(cost, n, context, chunk, 0.0, n + (chunk > 0)))

    slope = (step(seats, pool_tokens, 0) - step(seats, pool_tokens // 2, 0)) / max(
        pool_tokens - pool_tokens // 2, 1
    )
    alone = {(n, s): step(n, s, 0) for n in decodes for s in contexts}
    some = contexts[:: len(contexts) // 4].tolist()
    mixed = {(n, s, t): step(n, s, t) for n, t in mixes for s in (some if n else (0,))}
    planes = []
    for context_share in _CONTEXT_SHARES:
        per_context = context_share * max(slope, 0.0)
        most = min((time - per_context * s) / n for (n, s), time in alone.items())
        for decode_share in _DECODE_SHARES:
            decode = decode_share * most
            if decode < 0.0:
                continue
            prefill = min(
                (time - decode * n - per_context * s) / t for (n, s, t), time in mixed.items()
            )
            if prefill >= 0.0:
                charged = _SAFETY * np.array([prefill, decode, per_context])
                planes.append(Plane(*charged.tolist()))
    return [one for one in planes if not any(_is_above(other, one) for other in planes)]


def _is_above(other: Plane, one: Plane) -> bool:
    """Tell whether ``other`` says all that ``one`` does and more."""
    charged = [
        (getattr(other, name), getattr(one, name))
        for name in ("prefill_token_s", "decode_s", "context_token_s")
    ]
    return all(more >= less for more, less in charged) and any(a > b for a, b in charged)


@dataclass(frozen=True)
class _Windows:
    """When requests may be served, float64 (n,) each.

    Attributes:
        decodes: Output tokens after the first.
        arrival_s: Where both windows begin.
        first_s: Where that of the prefill ends.
        last_s: Where that of the decodes ends.
    """

    decodes: Floats
    arrival_s: Floats
    first_s: Floats
    last_s: Floats

    @classmethod
    def of(cls, requests: NDArray[Any]) -> _Windows:
        """Return the windows of requests."""
        decodes = np.maximum(np.asarray(requests["stop_at_tokens"], np.float64) - 1.0, 0.0)
        arrival_s = np.asarray(requests["arrival_time_s"], np.float64)
        first_s = arrival_s + requests["ttft_slo_s"]
        return cls(decodes, arrival_s, first_s, first_s + requests["tpot_slo_s"] * decodes)

    @property
    def span_s(self) -> float:
        """Return the seconds from the first arrival to the end of the last window."""
        return float(self.last_s.max() - self.arrival_s.min())

    @property
    def total_s(self) -> float:
        """Return the seconds of all windows together."""
        decoded_s = (self.last_s - self.arrival_s)[self.decodes > 0]
        return float((self.first_s - self.arrival_s).sum() + decoded_s.sum())


class _Program:
    """The linear program; variables are y, then u, then v."""

    def __init__(self, requests: NDArray[Any], env: EnvConfig, bin_s: float) -> None:
        self._env = env
        self._planes = planes_below(env)
        cost = _cost_of(env)
        self._shortest_step_s = float(step_time_s(cost, 1, 0, 0, 0.0, 1))
        self._weight = np.asarray(requests["weight"], np.float64)
        self._prompt = np.asarray(requests["prompt_tokens"], np.float64)
        windows = _Windows.of(requests)
        self._decodes = windows.decodes
        self._start_s = float(windows.arrival_s.min())
        self.num_bins = int(np.ceil(windows.span_s / bin_s)) + 1
        self._bin_s = bin_s
        self._prefill = self._spread(windows.arrival_s, windows.first_s)
        self._decode = self._spread(windows.arrival_s, windows.last_s, self._decodes > 0)

    def _spread(
        self, from_s: Floats, until_s: Floats, chosen: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return request and bin of each variable: the bins that a window touches."""
        first = np.floor((from_s - self._start_s) / self._bin_s).astype(np.int64)
        count = np.floor((until_s - self._start_s) / self._bin_s).astype(np.int64) - first + 1
        if chosen is not None:
            count = np.where(chosen, count, 0)
        rows = np.repeat(np.arange(len(count)), count)
        ends = np.cumsum(count)
        place = np.arange(int(ends[-1])) - np.repeat(ends - count, count)
        return rows, first[rows] + place

    @property
    def num_variables(self) -> int:
        """Return the number of variables."""
        return len(self._weight) + len(self._prefill[0]) + len(self._decode[0])

    def objective(self) -> Floats:
        """Return the gain of each variable, float64 (num_variables,)."""
        gain = np.zeros(self.num_variables)
        gain[: len(self._weight)] = self._weight / self._weight.sum()
        return gain

    def parts(self) -> tuple[Any, Floats]:
        """Return the equations: the parts of a request over the bins add up to what is met."""
        from scipy.sparse import coo_array

        count = len(self._weight)
        some = np.flatnonzero(self._decodes > 0)
        order = np.full(count, -1)
        order[some] = count + np.arange(len(some))
        rows = np.r_[np.arange(count), self._prefill[0], order[some], order[self._decode[0]]]
        first_u, first_v = count, count + len(self._prefill[0])
        columns = np.r_[
            np.arange(count),
            first_u + np.arange(len(self._prefill[0])),
            some,
            first_v + np.arange(len(self._decode[0])),
        ]
        values = np.r_[
            -np.ones(count),
            np.ones(len(self._prefill[0])),
            -np.ones(len(some)),
            np.ones(len(self._decode[0])),
        ]
        shape = (count + len(some), self.num_variables)
        return coo_array((values, (rows, columns)), shape).tocsr(), np.zeros(shape[0])

    def limits(self) -> tuple[Any, Floats]:
        """Return the inequalities of time, blocks and seats in each bin, scaled to 1."""
        from scipy.sparse import coo_array

        server = self._env.scheduler
        held_s = self._decodes * self._shortest_step_s
        blocks = np.ceil((self._prompt + 1.0) / server.block_size)
        no_prefill = np.zeros(len(self._weight))
        lines = [
            (
                plane.prefill_token_s * self._prompt,
                plane.decode_s * self._decodes
                + plane.context_token_s * self._decodes * (self._prompt + 1.0),
            )
            for plane in self._planes
        ]
        lines.append((no_prefill, blocks * held_s / server.num_blocks))
        lines.append((no_prefill, held_s / server.max_num_seqs))
        (u_rows, u_bins), (v_rows, v_bins) = self._prefill, self._decode
        first_u = len(self._weight)
        first_v = first_u + len(u_rows)
        columns = np.r_[first_u + np.arange(len(u_rows)), first_v + np.arange(len(v_rows))]
        rows, values = [], []
        for index, (of_prefill, of_decode) in enumerate(lines):
            rows.append(index * self.num_bins + np.r_[u_bins, v_bins])
            values.append(np.r_[of_prefill[u_rows], of_decode[v_rows]] / self._bin_s)
        entries = np.concatenate(values), (np.concatenate(rows), np.tile(columns, len(lines)))
        shape = (len(lines) * self.num_bins, self.num_variables)
        return coo_array(entries, shape).tocsr(), np.ones(shape[0])
