"""The public slices: row counts and measured facts, as documented beside them."""

from __future__ import annotations

import numpy as np
import pytest

from sched_env.workload import PoissonArrivals, read_trace, summarize
from sched_env.workload.inspect import prefix_summary
from tests.workload.made_tables import sharing

_ROWS = {
    "azure2023/AzureLLMInferenceTrace_code.csv": ("azure", 6621),
    "azure2023/AzureLLMInferenceTrace_conv.csv": ("azure", 12337),
    "azure2023/AzureLLMInferenceTrace_conv.csv.gz": ("azure", 12337),
    "burstgpt/BurstGPT_1.csv": ("burstgpt", 280),
    "burstgpt/BurstGPT_3.csv": ("burstgpt", 280),
    "mooncake/conversation_trace.jsonl": ("mooncake", 6758),
    "mooncake/conversation_trace.jsonl.gz": ("mooncake", 6758),
    "mooncake/synthetic_trace.jsonl": ("mooncake", 2318),
    "vidur/splitwise_code.csv": ("vidur", 6621),
    "vidur/splitwise_conv.csv": ("vidur", 12337),
}
_ARXIV = "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"


@pytest.fixture(scope="module")
def read(shared_dir):
    tables = {}

    def cached(name, **options):
        key = (name, *sorted(options.items()))
        if key not in tables:
            tables[key] = read_trace(shared_dir / "traces" / name, **options)
        return tables[key]

    return cached


@pytest.mark.parametrize("name", _ROWS)
def test_every_row_is_read_or_counted(read, name):
    table = read(name)
    trace_format, num_rows = _ROWS[name]
    assert table.source.format == trace_format
    assert len(table) + table.source.num_dropped == num_rows
    assert table.arrival_time_s[0] == 0


def test_azure_facts(read):
    conv = read("azure2023/AzureLLMInferenceTrace_conv.csv")
    code = read("azure2023/AzureLLMInferenceTrace_code.csv")
    assert np.diff(conv.arrival_time_s).min() == pytest.approx(2e-6, abs=1e-9)
    assert np.diff(code.arrival_time_s).min() == pytest.approx(6e-6, abs=1e-9)
    assert conv.arrival_time_s[1] == pytest.approx(4.314579, abs=1e-9)
    assert (conv.prompt_tokens.min(), conv.output_tokens.min()) == (2, 7)
    assert (code.prompt_tokens.min(), code.output_tokens.min()) == (3, 6)
    assert conv.output_tokens.max() == 1000
    assert np.sum((code.prompt_tokens >= 7435) & (code.prompt_tokens <= 7437)) > 150
    assert summarize(conv).gap_cv == pytest.approx(1.08, abs=0.01)
    assert summarize(conv).dispersion_1s == pytest.approx(1.35, abs=0.01)
    assert summarize(conv).dispersion_10s == pytest.approx(3.54, abs=0.01)
    assert summarize(code).gap_cv == pytest.approx(12.8, abs=0.05)
    assert summarize(code).dispersion_10s == pytest.approx(70.0, abs=0.1)
    assert conv.source.drops == code.source.drops == {}


def test_too_long_azure_rows_are_counted(read):
    for name, share in (("conv", 0.1208), ("code", 0.1424)):
        table = read(f"azure2023/AzureLLMInferenceTrace_{name}.csv", max_model_len=4096)
        total = len(table) + table.source.num_dropped
        assert table.source.num_dropped / total == pytest.approx(share, abs=0.0001)


def test_the_packed_file_and_vidur_s_copy_hold_the_same_requests(read):
    conv = read("azure2023/AzureLLMInferenceTrace_conv.csv")
    assert read("azure2023/AzureLLMInferenceTrace_conv.csv.gz").equals(conv)
    for name in ("conv", "code"):
        azure = read(f"azure2023/AzureLLMInferenceTrace_{name}.csv")
        copy = read(f"vidur/splitwise_{name}.csv")
        assert np.max(np.abs(azure.arrival_time_s - copy.arrival_time_s)) < 1e-12
        assert azure.equals(copy.with_columns(arrival_time_s=azure.arrival_time_s))


def test_burstgpt_facts(read):
    first, third = read("burstgpt/BurstGPT_1.csv"), read("burstgpt/BurstGPT_3.csv")
    assert first.source.drops == {"0 prompt and 0 output tokens": 11}
    assert third.source.drops == {"0 prompt and 0 output tokens": 1}
    assert first.mean_rate_rps == pytest.approx(0.008, abs=0.0005)
    assert third.span_s < 40_000
    assert first.source.resolution_s == third.source.resolution_s == 1.0


def test_mooncake_conversation_sits_on_a_grid_of_3_s_and_spreading_makes_it_near_poisson(read):
    grid = read("mooncake/conversation_trace.jsonl")
    assert grid.source.resolution_s == 3.0
    raw = summarize(grid)
    assert raw.zero_gap_share == pytest.approx(0.90, abs=0.01)
    assert raw.gap_cv == pytest.approx(2.94, abs=0.02)
    spread = summarize(read("mooncake/conversation_trace.jsonl", spread_resolution=True))
    assert spread.gap_cv == pytest.approx(1.01, abs=0.03)
    assert spread.dispersion_1s == pytest.approx(1.05, abs=0.1)


def test_mooncake_synthetic_is_poisson_on_a_fine_clock(read):
    table = read("mooncake/synthetic_trace.jsonl")
    assert table.source.resolution_s == 0.0
    assert summarize(table).gap_cv == pytest.approx(1.0, abs=0.03)
    assert table.mean_rate_rps == pytest.approx(3.78, abs=0.01)


def test_mooncake_prefix_sharing(read):
    table = read("mooncake/conversation_trace.jsonl")
    prefix = prefix_summary(table)
    assert prefix.block_tokens == 512
    assert prefix.block_hit_rate == pytest.approx(0.346, abs=0.0005)
    assert prefix.num_full_hits > 0
    assert all(sharing(table).row(i)[0] == 0 for i in range(len(table)))
    assert np.all(sharing(table).num_blocks == -(-table.prompt_tokens // 512))


def test_lengths_alone_need_an_arrival_process(read):
    table = read(_ARXIV, arrival=PoissonArrivals(2.0))
    assert len(table) == 17000
    assert (table.prompt_tokens + table.output_tokens).max() <= 4096


@pytest.mark.parametrize(
    ("folder", "num_clients", "window_s"),
    [("language/m-small", 4, (0, 600)), ("reason/deepseek-r1", 10, (0, 7200))],
)
def test_servegen_rates(read, shared_dir, folder, num_clients, window_s):
    table = read(f"servegen/{folder}", window_s=window_s)
    paths = sorted((shared_dir / "traces/servegen" / folder).glob("*-trace.csv"))
    assert len(paths) == num_clients
    expected = 0.0
    for path in paths:
        for line in path.read_text().splitlines():
            start_s, rate_rps = map(float, line.split(",")[:2])
            expected += 600 * rate_rps if window_s[0] <= start_s < window_s[1] else 0
    assert len(table) == pytest.approx(expected, rel=0.05)
    assert table.source.notes[0].startswith(f"{num_clients} ServeGen client(s)")
