from __future__ import annotations

import pytest

from sched_env.errors import UnknownNameError
from sched_env.executor.shapes import SHAPES, shape_of
from sched_env.executor.step_grid import GridLimits, StepPoint, step_grid, tile_edges

LIMITS = GridLimits(
    max_num_seqs=8, max_num_batched_tokens=40, max_context_tokens=64, num_kv_tokens=200
)


def test_sizes_stand_at_both_sides_of_a_tile() -> None:
    assert tile_edges(20) == [1, 2, 3, 4, 5, 8, 9, 16, 17, 20]
    assert tile_edges(1) == [1]


def test_the_grid_stays_within_its_limits_and_has_each_phase() -> None:
    points = step_grid(LIMITS)
    assert {point.phase for point in points} == {"decode", "prefill", "mixed"}
    assert len(set(points)) == len(points)
    for point in points:
        assert 0 < point.new_tokens <= 40
        assert point.num_decodes <= 8
        assert point.kv_tokens <= 200
        assert point.context_tokens <= 64
        assert point.prefill_past + point.prefill_tokens <= 64
    assert StepPoint(8, 16, 0, 0) in points
    assert StepPoint(8, 32, 0, 0) not in points  # 256 tokens of KV cache
    assert StepPoint(0, 0, 33, 0) in points


def test_the_floor_counts_weights_and_cached_keys_and_values() -> None:
    shape = SHAPES["toy"]
    decode = StepPoint(3, 100, 0, 0)
    numbers = shape.step_parameters + 3 * 99 * 2 * 4 * 2 * 64
    assert decode.floor_s(shape, 4, 1e9) == pytest.approx(4 * numbers / 1e9)
    prompt = StepPoint(0, 0, 64, 0)
    assert prompt.floor_s(shape, 4, 1e9) == pytest.approx(4 * shape.step_parameters / 1e9)


# Parameter counts of the published models.
@pytest.mark.parametrize(
    ("name", "published"),
    [("llama-1b", 1_235_814_400), ("llama-3b", 3_212_749_824), ("llama-8b", 8_030_261_248)],
)
def test_shapes_have_the_published_number_of_parameters(name: str, published: int) -> None:
    assert shape_of(name).num_parameters == published


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'llama-8b'"):
        shape_of("lama-8b")
