"""The manifests: what they allow is what is asked for, and nothing blocks a cluster when we are down."""

from typing import Any

import pytest
import yaml

from gpuyard.serve.kubernetes.kueue import CONTROLLER
from gpuyard.serve.settings import make_settings
from support.paths import ROOT

HOME = ROOT / "integrations" / "kubernetes"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((HOME / name).read_text(encoding="utf-8")))


def test_rights_are_the_least() -> None:
    rules = [rule for one in documents("rbac.yaml") for rule in one.get("rules", ())]
    verbs = {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    assert verbs == {
        *(("nodes", verb) for verb in ("get", "list", "watch")),
        *(("pods", verb) for verb in ("get", "list", "watch", "patch")),
        *(("leases", verb) for verb in ("create", "get", "update")),
    }


def test_the_cluster_goes_on_without_us() -> None:
    assert all(one["ignorable"] for one in documents("extender/scheduler.yaml")[0]["extenders"])
    hook = documents("webhook/webhook.yaml")[1]["webhooks"][0]
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")


def test_the_shipped_settings_are_settings_and_begin_in_the_shadow() -> None:
    import tomllib

    text = next(one for one in documents("agent.yaml") if one["kind"] == "ConfigMap")["data"]["serve.toml"]
    made = make_settings(tomllib.loads(text))
    assert (made.mode, made.control, made.kubernetes.lever) == ("shadow", "start", "gates")


def test_everything_that_is_listed_is_there() -> None:
    listed = documents("kustomization.yaml")[0]["resources"]
    assert all((HOME / name).is_file() for name in listed)
    assert "watchdog.yaml" in listed
    assert documents("kueue/kueue.yaml")[0]["spec"]["controllerName"] == CONTROLLER


@pytest.mark.parametrize("name", ["agent.yaml", "watchdog.yaml"])
def test_no_container_runs_as_root(name: str) -> None:
    made = next(one for one in documents(name) if one["kind"] == "Deployment")
    assert made["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
