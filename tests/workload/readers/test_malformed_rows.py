"""Any bytes give a valid table or a ``TraceError`` on one line, never another exception."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_env.errors import TraceError
from sched_env.workload import PoissonArrivals, RequestTable, read_trace
from sched_env.workload.readers.formats import FORMATS
from tests.workload.readers import trace_texts

_TEXTS = [
    trace_texts.AZURE_2023,
    trace_texts.AZURE_2024,
    trace_texts.BURSTGPT_1,
    trace_texts.BURSTGPT_3,
    trace_texts.MOONCAKE,
    trace_texts.QWEN,
    trace_texts.VIDUR,
    trace_texts.GENERIC_CSV,
    trace_texts.SERVEGEN_TRACE,
]
_CELLS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.text(max_size=8),
    st.sampled_from(["", '"', "'", ",", "\r", "\n", "NaN", "null", "{", "[" * 50, "1e308", "\x00"]),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def _table_or_fault(path: Path, options) -> RequestTable | TraceError:
    try:
        return read_trace(path, **options)
    except TraceError as error:
        return error


def _is_table_or_fault(data: bytes, **options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chunk-1-trace.csv"
        path.write_bytes(data)
        (Path(folder) / "chunk-1-dataset.json").write_text(trace_texts.SERVEGEN_DATASET)
        table = _table_or_fault(path, options)
    if isinstance(table, TraceError):
        assert len(str(table).splitlines()) == 1
        return
    assert len(table) >= 1
    assert table.arrival_time_s[0] == 0
    assert table.prompt_tokens.min() >= 1
    assert table.output_tokens.min() >= 1


@settings(max_examples=150)
@given(text=st.sampled_from(_TEXTS), at=st.floats(0, 1), length=st.integers(0, 12), cell=_CELLS)
def test_one_place_overwritten(text, at, length, cell):
    start = int(at * len(text))
    changed = text[:start] + cell + text[start + length :]
    _is_table_or_fault(changed.encode("utf-8", "surrogatepass"))


@settings(max_examples=80)
@given(
    text=st.sampled_from(_TEXTS), at=st.floats(0, 1), junk=st.binary(max_size=6), cut=st.booleans()
)
def test_bytes_inserted_or_the_file_cut(text, at, junk, cut):
    data = text.encode()
    start = int(at * len(data))
    _is_table_or_fault(data[:start] + junk + (b"" if cut else data[start:]))


@settings(max_examples=80)
@given(
    row=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("timestamp", "input_length", "output_length", "hash_ids", "chat_id"), _JSON
        ),
    ),
    name=st.sampled_from(["mooncake", "qwen", None]),
)
def test_any_json_row(row, name):
    data = trace_texts.MOONCAKE + json.dumps(row) + "\n"
    _is_table_or_fault(data.encode(), format=name)


@settings(max_examples=80)
@given(
    row=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (
                "arrival_time_s",
                "prompt_tokens",
                "output_tokens",
                "priority",
                "service_class",
                "predicted_output_tokens",
                "failed",
                "hash_ids",
                "block_tokens",
            ),
            st.integers(-3, 600) | _JSON,
        ),
    )
)
def test_any_generic_row(row):
    _is_table_or_fault(json.dumps(row).encode(), format="generic", arrival=PoissonArrivals(1.0))


@pytest.mark.parametrize("name", sorted(FORMATS))
@settings(max_examples=15)
@given(data=st.binary(max_size=200))
def test_any_bytes_under_any_format(name, data):
    _is_table_or_fault(data, format=name)
