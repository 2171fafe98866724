"""The folder of one search: what was searched, how it went, and the policy.

::

    DIR/config.yaml        environment, tuning and seed
    DIR/environment.json   versions and machine
    DIR/progress.csv       one row a look at the validation split
    DIR/policy/            the exported score
    DIR/summary.json       what came out; its presence says that the search is complete
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sched_env.agents.score_search.search import Look, SearchResult
from sched_env.config import EnvConfig
from sched_env.config.experiment import ObjectiveConfig
from sched_env.config.tuning import TuningConfig
from sched_env.env.build import read_tables
from sched_env.evaluation.files import write_json, write_text
from sched_env.evaluation.fingerprints import cost_sha256, table_sha256, weights_sha256
from sched_env.evaluation.folders import CONFIG, SEARCH, SEARCH_START, make_folder
from sched_env.evaluation.machine import describe_machine
from sched_env.policy.format import write_policy
from sched_env.policy.runtime import ExportedPolicy


def search_question(
    env: EnvConfig,
    tuning: TuningConfig,
    seed: int,
    start: ExportedPolicy | None,
    objective: ObjectiveConfig,
) -> dict[str, Any]:
    """Return everything that decides a search.

    Args:
        env: Traces, server, clients and observation.
        tuning: How long and on what to search.
        seed: Decides the rest.
        start: The policy that it goes on from.
        objective: What the best candidate is best at.

    Raises:
        TraceError: A trace cannot be read.
    """
    return {
        "seed": seed,
        SEARCH_START: None if start is None else weights_sha256(start),
        "requests_sha256": [table_sha256(table) for table in read_tables(env)],
        "cost_sha256": cost_sha256(env.cost),
        "objective": objective.to_dict(),
        "tuning": tuning.to_dict(),
        "env": env.to_dict(),
    }


def open_search_folder(path: Path, question: Mapping[str, Any]) -> Path:
    """Make the folder and say in it what will be searched.

    Raises:
        SchedEnvError: A file or a training run is in the way, or nothing can be written there.
    """
    folder = make_folder(path, SEARCH)
    (folder / "summary.json").unlink(missing_ok=True)
    write_text(folder / CONFIG, yaml.safe_dump(dict(question), sort_keys=False))
    write_json(folder / "environment.json", describe_machine())
    return folder


def looks_csv(looks: Sequence[Look]) -> str:
    """Return a table with one row a look."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in dataclasses.fields(Look)])
    writer.writerows(dataclasses.astuple(look) for look in looks)
    return text.getvalue()


def write_search(result: SearchResult, folder: Path) -> Path:
    """Write the policy, the looks and the summary; return the policy's folder."""
    policy = write_policy(folder / "policy", result.policy.weights, result.policy.card)
    write_text(folder / "progress.csv", looks_csv(result.looks))
    write_json(folder / "summary.json", dict(result.policy.card.training))
    return policy
