"""Models that training starts from: what is refused, and how the refusal reads."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gpuyard import _core
from gpuyard.env import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.config import read_config
from gpuyard.learn.networks.heads import make_network
from gpuyard.learn.settings import assemble
from gpuyard.learn.start import make_policy_network
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.network.sizes import NetworkSizes

SMALL: dict[str, Any] = {"workload": "demo", "jobs_per_episode": 8, "window": 4}

JOB_COLUMNS = [name for name, *_ in _core.JOB_COLUMNS]


def environment(kind: str = "select-job", **changes: Any) -> SchedulingVectorEnv:
    return SchedulingVectorEnv(kind, 1, threads=1, **{**SMALL, **changes})


def a_model(path: Path, *, env: SchedulingVectorEnv | None = None, **network: Any) -> str:
    env, config = env or environment(), NetworkConfig(**{"kind": "job-scorer", "width": 8, **network})
    made = make_network(config, NetworkSizes.of(env.model), seed=1)
    tensors = {name: tensor.detach().numpy() for name, tensor in made.state_dict().items()}
    write_model(path, ModelFile.of(env.model, config, tensors, {}))
    return str(path)


@pytest.mark.parametrize(
    ("network", "changes", "message"),
    [
        ({"kind": "mlp"}, {}, r"network\.kind is job-scorer there and mlp here; leave network\.kind out"),
        ({"kind": "job-scorer", "width": 16}, {}, r"network\.width is 8 there and 16 here"),
        ({"kind": "job-scorer", "depth": 3}, {}, r"network\.depth is 2 there and 3 here"),
        (
            {},
            {"job_features": ["wait", "gpus"]},
            r"does not fit the environment: job columns \d+ there and 2 here",
        ),
        (
            {},
            {"job_features": JOB_COLUMNS[::-1]},
            r"columns of jobs are others \(the same ones in another order\); set `environment\.job_features`",
        ),
        (
            {},
            {"job_features": ["starts_in", *JOB_COLUMNS[1:]]},
            r"columns of jobs are others \(only there: present; only here: starts_in\)",
        ),
    ],
)
def test_model_that_does_not_fit_is_refused_with_what_differs(
    tmp_path: Path, network: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    source = a_model(tmp_path / "a.safetensors")
    config = read_config({"algorithm": "ppo", "network": {"width": 8, **network}, "init_from": source})
    with pytest.raises(InputError, match=message) as error:
        make_policy_network(config, environment(**changes).model)
    assert source in str(error.value)


def test_columns_that_a_network_does_not_read_may_be_others(tmp_path: Path) -> None:
    nodes = [name for name, *_ in _core.NODE_COLUMNS]
    other = environment(node_features=nodes[::-1]).model
    scorer = a_model(tmp_path / "scorer.safetensors")
    make_policy_network(
        read_config({"algorithm": "ppo", "network": {"width": 8}, "init_from": scorer}), other
    )
    mlp = a_model(tmp_path / "mlp.safetensors", kind="mlp")
    config = read_config({"algorithm": "ppo", "network": {"width": 8, "kind": "mlp"}, "init_from": mlp})
    with pytest.raises(InputError, match=r"columns of nodes are others \(the same ones in another order\)"):
        make_policy_network(config, other)


def test_counts_that_agree_in_all_do_not_hide_other_columns(tmp_path: Path) -> None:
    """Four rows of a job column weigh as much as four columns of the whole."""
    overall = list(dict.fromkeys(environment().model.parts["globals"].names))
    one = environment(global_features=overall[:4])
    other = environment(global_features=overall[:8], job_features=JOB_COLUMNS[1:])
    source = a_model(tmp_path / "a.safetensors", env=one, kind="mlp")
    config = read_config({"algorithm": "ppo", "network": {"width": 8, "kind": "mlp"}, "init_from": source})
    with pytest.raises(
        InputError, match=r"columns of jobs are others \(only there: present; only here: none\)"
    ):
        make_policy_network(config, other.model)


def test_another_form_of_the_lookahead_is_refused(tmp_path: Path) -> None:
    source = a_model(tmp_path / "a.safetensors")
    config = read_config({"algorithm": "ppo", "network": {"width": 8}, "init_from": source})
    with pytest.raises(
        InputError, match=r"its lookahead is sorted and not cdf; set `environment\.lookahead=sorted`"
    ):
        make_policy_network(config, environment(lookahead="cdf").model)


def test_copy_is_read_in_place_of_a_model_that_is_gone(tmp_path: Path) -> None:
    source = a_model(tmp_path / "a.safetensors")
    config = read_config({"algorithm": "ppo", "network": {"width": 8}, "init_from": source})
    first = make_policy_network(config, environment().model).state_dict()
    copy = (tmp_path / "a.safetensors").rename(tmp_path / "start.safetensors")
    again = make_policy_network(config, environment().model, copy).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    with pytest.raises(InputError, match="no such run directory or model file"):
        make_policy_network(config, environment().model)


def test_a_model_takes_the_place_of_a_presets_rule(tmp_path: Path) -> None:
    env = SchedulingVectorEnv("select-job", 1, threads=1, preset="bursty-8gpu")
    config = NetworkConfig(kind="rule")
    made = make_network(config, NetworkSizes.of(env.model), seed=1)
    tensors = {name: tensor.detach().numpy() for name, tensor in made.state_dict().items()}
    write_model(tmp_path / "rule.safetensors", ModelFile.of(env.model, config, tensors, {}))
    settings = assemble("ppo", {}, preset="bursty", init_from=str(tmp_path / "rule.safetensors"))
    assert settings.rule is None
    assert settings.network.residual == "rule"
    assert assemble("ppo", {}, preset="bursty").rule is not None
