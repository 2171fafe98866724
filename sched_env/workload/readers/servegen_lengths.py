"""Token-length distributions of a ServeGen client, per window."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sched_env.errors import TraceError
from sched_env.workload.columns import MAX_TOKENS
from sched_env.workload.lengths import correlated_uniforms
from sched_env.workload.readers.faults import shown
from sched_env.workload.readers.trace_file import TraceFile

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
_PAIR = re.compile(r"\s*([0-9]{1,10})\s*:\s*([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?)\s*", re.ASCII)


@dataclass(frozen=True)
class LengthDistribution:
    """Probabilities of token counts.

    Attributes:
        tokens: int64 (k,), increasing.
        cumulative: float64 (k,), increasing to 1.
    """

    tokens: IntArray
    cumulative: FloatArray

    def quantile(self, uniforms: FloatArray) -> IntArray:
        """Return the token counts at these levels in [0, 1), int64 like ``uniforms``."""
        index = np.searchsorted(self.cumulative, uniforms, side="right")
        return self.tokens[np.minimum(index, len(self.tokens) - 1)]


@dataclass(frozen=True)
class LengthWindows:
    """Distributions of prompt and output tokens by window.

    Attributes:
        name: file name for messages.
        start_s: float64 (w,), increasing starts of the windows.
        prompt: distribution of each window, ``None`` where it saw no traffic.
        output: distribution of each window, ``None`` where it saw no traffic.
    """

    name: str
    start_s: FloatArray
    prompt: tuple[LengthDistribution | None, ...]
    output: tuple[LengthDistribution | None, ...]

    @classmethod
    def load(cls, path: Path) -> LengthWindows:
        """Read ``chunk-N-dataset.json``.

        Raises:
            TraceError: not JSON, a window without distributions, or a bad probability.
        """
        file = TraceFile.load(path)
        windows = _windows(file)
        starts = sorted(windows)
        columns = {
            key: tuple(
                parse_distribution(windows[start].get(key), f"{file.name}, window {start:g}", key)
                for start in starts
            )
            for key in ("input_tokens", "output_tokens")
        }
        return cls(
            file.name, np.array(starts, float), columns["input_tokens"], columns["output_tokens"]
        )

    def draw(
        self, rng: np.random.Generator, arrival_s: FloatArray, correlation: float
    ) -> tuple[IntArray, IntArray]:
        """Draw prompt and output tokens for sorted arrivals, int64 (n,) each.

        Raises:
            TraceError: requests arrive in a window without distribution.
        """
        u_prompt, u_output = correlated_uniforms(rng, correlation, len(arrival_s))
        prompt = np.zeros(len(arrival_s), np.int64)
        output = np.zeros(len(arrival_s), np.int64)
        window = np.searchsorted(self.start_s, arrival_s, side="right") - 1
        for index in np.unique(window):
            chosen = window == index
            of_prompt = self.prompt[index] if index >= 0 else None
            of_output = self.output[index] if index >= 0 else None
            if of_prompt is None or of_output is None:
                raise TraceError(
                    f"{self.name}: no lengths for the traffic at {arrival_s[chosen][0]:g} s; give "
                    "the dataset that belongs to this trace"
                )
            prompt[chosen] = of_prompt.quantile(u_prompt[chosen])
            output[chosen] = of_output.quantile(u_output[chosen])
        return prompt, output


def _windows(file: TraceFile) -> dict[float, dict[str, object]]:
    try:
        content = json.loads(file.text())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise TraceError(f"{file.name}: not JSON ({reason}); download it again") from error
    if not isinstance(content, dict) or not content:
        raise TraceError(f"{file.name}: not an object of windows; give a ServeGen dataset")
    windows: dict[float, dict[str, object]] = {}
    for key, value in content.items():
        if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]+)?", key, re.ASCII) or not isinstance(
            value, dict
        ):
            raise TraceError(
                f"{file.name}, window {shown(key)}: not a start in seconds with an object; give a "
                "ServeGen dataset"
            )
        windows[float(key)] = value
    return windows


def parse_distribution(text: object, place: str, column: str) -> LengthDistribution | None:
    """Parse the text of a dict ``{tokens: probability, ...}``; ``None`` if it is empty.

    Only numbers, colons and commas are taken: the text is never evaluated.

    Raises:
        TraceError: any other text, or probabilities that sum to nothing.
    """
    where = f"{place}, column {column}"
    stripped = text.strip() if isinstance(text, str) else ""
    if not (stripped.startswith("{") and stripped.endswith("}")):
        raise TraceError(f"{where}: {shown(text)} is not the text of a dict; download it again")
    inner = stripped[1:-1].strip().removesuffix(",")
    if not inner:
        return None
    tokens: list[int] = []
    weights: list[float] = []
    for part in inner.split(","):
        pair = _PAIR.fullmatch(part)
        if pair is None or int(pair[1]) > MAX_TOKENS:
            raise TraceError(
                f"{where}: {shown(part.strip())} is not 'tokens: probability'; download it again"
            )
        tokens.append(int(pair[1]))
        weights.append(float(pair[2]))
    order = np.argsort(tokens, kind="stable")
    cumulative = np.cumsum(np.array(weights)[order])
    if not 0 < cumulative[-1] < np.inf:
        raise TraceError(f"{where}: the probabilities sum to {cumulative[-1]}; download it again")
    return LengthDistribution(np.array(tokens)[order], cumulative / cumulative[-1])
