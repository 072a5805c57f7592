"""Every rule with its formula and source, every model with its card."""

import re
from html import escape

import pytest

from gpuyard.policies.formulas import FORMULAS
from gpuyard.policies.heuristics import Order
from gpuyard.registry import registered
from support.paths import ROOT
from unit.dashboard.conftest import Visit


def test_formulas_are_those_of_the_contract() -> None:
    text = (ROOT / "docs" / "contract" / "simulator.md").read_text(encoding="utf-8")
    section = text[text.index("## 8. Order") : text.index("If a score uses r and r is unknown")]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    assert {name.partition(":")[0]: formula for name, formula in rows} == FORMULAS
    orders = [name for name, rule in registered("order").items() if isinstance(rule, Order)]
    assert set(orders) == set(FORMULAS)


@pytest.mark.parametrize("kind", ["order", "backfill", "placement"])
def test_every_rule_is_on_the_page(visit: Visit, kind: str) -> None:
    text = visit().get("/policies").text
    for rule in registered(kind).values():
        if hasattr(rule, "summary"):
            assert escape(rule.summary) in text
            assert f'<th scope="row">{escape(rule.form or rule.name)}</th>' in text


def test_every_model_has_its_card(visit: Visit) -> None:
    text = visit().get("/policies").text
    models = sorted((ROOT / "src" / "gpuyard" / "models").glob("*.json"))
    assert models
    for model in models:
        assert f"model:{model.stem}<" in text
