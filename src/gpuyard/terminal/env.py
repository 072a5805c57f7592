"""Environments as tables for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gpuyard.terminal.tables import plain_table
from gpuyard.units import metric_label, metric_text, number, plural

RESULTS = ("mean_bounded_slowdown", "mean_wait_s", "unfinished_jobs")
"""Metrics that are shown of an episode."""

Document = Mapping[str, Any]


def environment_table(environments: Iterable[Document]) -> Table:
    """Ids with their actions and what they are for."""
    table = plain_table("environment", "for", "actions", "what an action does")
    table.columns[0].no_wrap = True
    for one in environments:
        table.add_row(Text(one["id"], style="bold"), one["purpose"], Text(one["space"]), one["action"])
    return table


def preset_table(presets: Iterable[Document]) -> Table:
    """Presets, and the environments that they are for."""
    table = plain_table("preset", "for", "what it is")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for preset in presets:
        table.add_row(Text(preset["name"], style="bold"), "\n".join(preset["ids"]), preset["summary"])
    return table


def fact_table(document: Document, settings: Document) -> Table:
    """What an environment is like (``gpuyard.env.describe.describe_document``), but for its columns."""
    action, observation = document["action"], document["observation"]
    parts = {**observation["parts"], "mask": observation["mask"]}
    shapes = ", ".join(f"{name} {_shape(part['shape'])}" for name, part in parts.items())
    facts = {
        "environment": document["id"] + (f", preset {document['preset']}" if document["preset"] else ""),
        "for": document["purpose"],
        "actions": f"{action['space']}: {action['meaning']}",
        "mask": f"{plural(action['count'], 'entry')}: {observation['mask']['meaning']}",
        "observation": f"version {observation['version']}: {shapes}"
        + (", all in one vector" if observation["flatten"] else ""),
        "base policy": document["base_policy"],
        "episodes": _source(document["episodes"]),
        **{name.replace("_", " "): _value(value) for name, value in settings.items()},
    }
    table = plain_table("", "")
    table.show_header = False
    table.columns[0].no_wrap = True
    for name, value in facts.items():
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(entry)}" for name, entry in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _source(source: Document) -> str:
    cluster = source["cluster"]
    machines = (
        f"{cluster['name']} ({plural(cluster['nodes'], 'node')}, {plural(cluster['gpus'], 'GPU')})"
        if cluster
        else "a cluster that is drawn too"
    )
    jobs = plural(source["jobs"], "job")
    if source["source"] == "generator":
        seeds = "anew" if source["seeds"] is None else f"of {plural(len(source['seeds']), 'seed')}"
        return f"{jobs} drawn {seeds} by generator {source['generator']}, on {machines}"
    begin, end = source["rows"]
    return f"{jobs} in a row of workload {source['workload']} (rows {begin:,} to {end - 1:,}), on {machines}"


def column_table(part: str, what: Document) -> Table:
    """Columns of one part of an observation, with their bounds."""
    table = plain_table("column", part, "from", "to", right=(0, 2, 3))
    first = 0
    for column in what["columns"]:
        count = column["count"]
        places = str(first) if count == 1 else f"{first}-{first + count - 1}"
        table.add_row(
            places, Text(column["name"], style="bold"), _value(column["low"]), _value(column["high"])
        )
        first += count
    return table


def result_table(documents: Iterable[Document]) -> Table:
    """What reference policies reach in exported episodes."""
    headers = [metric_label(name) for name in RESULTS]
    table = plain_table("seed", "policy", "return", "steps", *headers, right=(0, *range(2, 4 + len(RESULTS))))
    for document in documents:
        table.add_section()
        for i, result in enumerate(document["results"]):
            metrics = [_metric(name, result["metrics"][name]) for name in RESULTS]
            seed = "" if i else str(document["seed"])
            table.add_row(seed, result["policy"], number(result["return"]), f"{result['steps']:,}", *metrics)
    return table


def _metric(name: str, value: float) -> str:
    return f"{value:,.0f}" if name.endswith("_jobs") else metric_text(name, value, short=True)
