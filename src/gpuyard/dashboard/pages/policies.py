"""Policies and models: names of rules with formula and source, and the cards of models that come along."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuyard.dashboard.site import Site
from gpuyard.evaluate.wording import PAGE
from gpuyard.policies.grammar import GRAMMAR
from gpuyard.policies.heuristics import Heuristic, described
from gpuyard.report import layout
from gpuyard.units import metric_label, metric_text

TITLE, PATH = "Policies", "/policies"
KINDS = {"order": "Orders", "backfill": "Backfilling", "placement": "Placement"}
LETTERS = (
    "The smallest score comes first. In seconds: s = submit, w = the wait so far, r = the estimate, "
    "t = submit in the whole trace; n = GPUs. What refers to a section is explained in "
    "docs/contract/simulator.md."
)


def routes(site: Site) -> Sequence[Route]:
    """The page."""

    def show(_: Request) -> Response:
        rules = "".join(
            layout.section(kind, title, _rules(kind), intro=LETTERS if kind == "order" else "")
            for kind, title in KINDS.items()
        )
        intro = "Trained for one benchmark of the literature each: their figures hold there and nowhere else."
        body = layout.paragraph(f"A policy is {GRAMMAR}.") + rules
        return site.page(
            "Policies and models", body + layout.section("models", "Models", _cards(), intro=intro), path=PATH
        )

    return [Route(PATH, show)]


def _rules(kind: str) -> str:
    rules = described(kind)
    has_formulas = any(getattr(rule, "formula", "") for rule in rules)
    heads = ["name", "what it is", *(["formula"] if has_formulas else []), "needs", "source"]
    cells = "".join(f'<th scope="col" data-kind="text">{head}</th>' for head in heads)
    rows = "".join(_rule(rule, has_formulas) for rule in rules)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(KINDS[kind])}">'
        f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _rule(rule: Heuristic, has_formulas: bool) -> str:
    """A row; only orders of the core have formulas."""
    needs = {"estimates": rule.uses_estimates, "preemption": rule.preempts}
    told = ", ".join(word for word, needed in needs.items() if needed)
    formula = f'<td class="formula">{escape(getattr(rule, "formula", ""))}</td>' if has_formulas else ""
    rest = f"<td>{told}</td><td>{escape(rule.source)}</td>"
    return (
        f'<tr><th scope="row">{escape(rule.form or rule.name)}</th>'
        f"<td>{escape(rule.summary)}</td>{formula}{rest}</tr>"
    )


def _cards() -> str:
    folder = files("gpuyard").joinpath("models")
    cards = sorted(
        (json.loads(one.read_text(encoding="utf-8")) for one in folder.iterdir() if _is_card(one.name)),
        key=lambda card: str(card["name"]),
    )
    return f'<div class="cards">{"".join(map(_card, cards))}</div>'


def _is_card(name: str) -> bool:
    return name.endswith(".json")


def _card(card: Mapping[str, Any]) -> str:
    test, trained = card["test"], card["trained_on"]
    metric, change = test["metric"], test["difference"]
    facts = {
        "tested by": metric_label(metric),
        "tested on": f"{test['windows']:,} episodes of {test['jobs_per_window']:,} jobs",
        "reached": metric_text(metric, test["value"]),
        "reference": f"{test['reference']}: {metric_text(metric, test['reference_value'])}",
        "difference": f"{PAGE.change(change['ratio'])}, {change['verdict']}",
        "95 % interval": f"{PAGE.change(change['low'])} to {PAGE.change(change['high'])}",
        "trained on": f"{trained['workload']}, cluster {trained['cluster']}",
        "estimates": trained["estimates"],
        "limits": card["limits"],
        "file": f"{card['bytes'] / 1024:.1f} KiB, made with gpuyard {card['gpuyard_version']}",
        "SHA-256": card["sha256"],
    }
    commands = "\n".join(_commands(card["training"]))
    return (
        f'<article class="card"><h3>model:{escape(card["name"])}</h3><p>{escape(card["title"])}. '
        f"{escape(card['why'])}</p>{layout.facts_list(facts)}"
        f"<details><summary>training</summary><pre>{escape(commands)}</pre></details></article>"
    )


def _commands(training: Iterable[Sequence[str]]) -> Iterable[str]:
    return (" ".join(["gpuyard", *words]).replace("{here}", "HERE") for words in training)
