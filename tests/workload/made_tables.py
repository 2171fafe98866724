"""Small request tables made by hand."""

from __future__ import annotations

from sched_env.workload import HashIds, RequestTable, TraceSource


def five_requests() -> RequestTable:
    """Return five requests over 10 s, two of them at one time, with prefix ids."""
    return RequestTable.from_columns(
        arrival_time_s=[0.0, 1.0, 1.0, 3.5, 10.0],
        prompt_tokens=[600, 512, 100, 1025, 1],
        output_tokens=[1, 20, 300, 4, 5],
        priority=[0.0, 2.0, 0.0, -1.5, 0.0],
        service_class=[-1, 0, 2, -1, 1],
        predicted_output_tokens=[float("nan"), 18.5, float("nan"), 4.0, 9.25],
        hash_ids=HashIds.from_lists([[1, 2], [1], [7], [1, 2, 3], [-4]], 512),
        source=TraceSource(name="five"),
    )


def ids_of(table: RequestTable) -> list[list[int]]:
    """Return each request's prefix block ids."""
    hash_ids = sharing(table)
    return [hash_ids.row(index).tolist() for index in range(len(hash_ids))]


def sharing(table: RequestTable) -> HashIds:
    """Return the prefix ids of a table that must have some."""
    assert table.hash_ids is not None
    return table.hash_ids
