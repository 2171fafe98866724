"""The README of an exported policy: a Hugging Face model card."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sched_env.policy.card import PolicyCard, Scalar

_TAGS = ("reinforcement-learning", "llm-inference", "scheduling", "continuous-batching", "vllm")


def render_model_card(card: PolicyCard) -> str:
    """Return the Markdown text of the model card: front matter, use, results, observation."""
    parts = [
        _front_matter(),
        f"# {_cell(card.name)}",
        f"A scheduling policy for LLM inference servers, trained in `{card.env_id}` of sched-env. "
        "It reads the waiting and running requests and answers with one action: proceed at a "
        "prefill level, admit a waiting request, or preempt a running one.",
        "## Use\n\n```bash\nsched-env simulate --policy . --trace azure_conv\n```\n\n"
        "```python\nfrom sched_env.policy.runtime import load_policy\n\n"
        'policy = load_policy(".")\nactions = policy.act(observations, masks)\n```',
        f"## Results\n\n{_results_table(card.metrics)}",
        f"## Training\n\n{_key_value_table(card.training)}",
        f"## Architecture\n\n{_key_value_table(_architecture(card))}",
        f"## Observation\n\n{_observation_table(card)}",
        f"## Versions\n\n{_key_value_table(card.versions)}",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter() -> str:
    tags = "\n".join(f"  - {tag}" for tag in _TAGS)
    return f"---\nlibrary_name: sched-env\npipeline_tag: reinforcement-learning\ntags:\n{tags}\n---"


def _architecture(card: PolicyCard) -> dict[str, Scalar]:
    content = card.model_dump(mode="json")
    rows: dict[str, Scalar] = {}
    for part in ("architecture", "normalisation", "prior"):
        for key, value in content[part].items():
            rows[f"{part}.{key}"] = value if isinstance(value, Scalar) else json.dumps(value)
    rows["observation_sha256"] = card.observation.sha256()
    return rows


def _results_table(rows: tuple[dict[str, Scalar], ...]) -> str:
    if not rows:
        return "No results were recorded at export."
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [_line(columns), _line(["---"] * len(columns))]
    lines += [_line([_cell(row.get(column)) for column in columns]) for row in rows]
    return "\n".join(lines)


def _key_value_table(values: Mapping[str, object]) -> str:
    if not values:
        return "Nothing was recorded at export."
    lines = [_line(["key", "value"]), _line(["---", "---"])]
    lines += [_line([_cell(key), _cell(value)]) for key, value in values.items()]
    return "\n".join(lines)


def _observation_table(card: PolicyCard) -> str:
    schema = card.observation
    lines = [
        f"{schema.num_waiting_slots} waiting and {schema.num_running_slots} running slots of "
        f"{len(schema.slot_features)} features, then {len(schema.global_features)} globals; "
        f"{schema.num_levels} proceed levels. Waiting requests are shown in the order of "
        f"{card.screen}.\n",
        _line(["part", "feature", "unit", "scale"]),
        _line(["---"] * 4),
    ]
    for part, features in (("slot", schema.slot_features), ("global", schema.global_features)):
        lines += [_line([part, _cell(f.name), _cell(f.unit), _cell(f.scale)]) for f in features]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    """Return ``value`` as text that cannot break out of a table."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = ", ".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
