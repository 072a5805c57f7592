"""Trained networks as policies: a run directory, a model file or ``model:NAME`` where a policy is named."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.inputs import CoreInputs
from gpuyard.network.history import after_history
from gpuyard.network.model_file import ModelFile, find_model, read_model
from gpuyard.network.rollout import NativeNetwork, native_network
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.transfer import other_cluster, other_information, other_steps
from gpuyard.observation.config import HOST_KINDS, EnvConfig
from gpuyard.observation.episodes import WindowedJobs
from gpuyard.observation.spec import MOST_LOOKAHEAD, EnvModel, acting_policy, core_spec, set_sizes
from gpuyard.policies.base import ReplayingPolicy
from gpuyard.policies.grammar import PolicySpec
from gpuyard.workload import Workload

_NOT_OF_THE_MODEL = {
    "rewards": {"slowdown": 1.0},
    "estimates": None,
    "split": "all",
    "jobs_per_episode": None,
    "warmup_jobs": 0,
    "cooldown_jobs": 0,
    "generator_seeds": None,
    "horizon_factor": None,
    "max_steps": None,
    "invalid": "raise",
    "flatten": False,
}
"""Settings of the environment that belong to training."""
_WORDS = {
    "job_columns": "columns of jobs",
    "node_columns": "columns of nodes",
    "global_columns": "columns of globals, which go by pools and GPUs",
    "choices_per_row": "pools",
    "tokens": "rows of nodes",
    "actions": "actions",
    "rows": "rows of jobs",
}


class LearnedPolicy(ReplayingPolicy):
    """A policy that a network makes.

    Its window, base policy, placement, features and step mode are those that it was trained with; jobs,
    cluster and settings of the simulation are those of whoever runs it.

    Args:
        name: The run directory, file or name that it was asked for by.
        model: What was trained.
    """

    def __init__(self, name: str, model: ModelFile) -> None:
        self._name = name
        self.model = model
        self._environment: tuple[Any, EnvModel] | None = None  # the last one, and what it was made for
        self._deciding: dict[tuple[int, int, int, int], tuple[_core.EnvSpec, NativeNetwork]] = {}

    @classmethod
    def open(cls, name: str) -> "LearnedPolicy":
        """The policy of a run directory, a model file or a name such as ``model:NAME``.

        Raises:
            InputError: if there is no such model, or it cannot be used.
        """
        return cls(name, read_model(find_model(name)))

    @property
    def name(self) -> str:
        """The run directory, file or name that it was asked for by."""
        return self._name

    @property
    def base(self) -> PolicySpec:
        """The policy that orders its window and places jobs."""
        return acting_policy(self.model.environment.base_policy_of(self.model.kind), self.model.kind)

    def notes(self, workload: Workload, cluster: Cluster, config: SimulationConfig) -> tuple[str, ...]:
        """What to know about a run of it over these jobs on this cluster under these settings."""
        elsewhere = [] if self.model.kind in HOST_KINDS else other_cluster(self.model, cluster)
        known = [*other_information(self.model, config), *elsewhere, *other_steps(self.model)]
        return tuple(f"policy {self.name} {difference}" for difference in known)

    def check_supported(self, workload: Workload, cluster: Cluster, config: SimulationConfig) -> None:
        """Raise an InputError unless the policy can run these jobs on this cluster."""
        model = self._model_for(workload, cluster, config)
        self._check_sizes(NetworkSizes.of(model), cluster.name)

    def replay(
        self,
        workload: Workload,
        cluster: Cluster,
        config: SimulationConfig,
        history: Workload | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[CoreInputs, dict[str, Any]]:
        """Run all jobs to their end: the simulation as the core took it, and the arrays of the schedule."""
        model = self._model_for(workload, cluster, config)
        if history is not None and (config.estimates == "history" or self.base.predicts):
            kept = len(model.inputs.kept)
            return model.inputs, self._replay_after(history, workload, cluster, config, kept, progress)
        network = self.network_for(NetworkSizes.of(model), cluster.name)
        table = model.episode(0)[0]
        return model.inputs, _core.replay(model.spec, table, network, progress)

    def _replay_after(
        self,
        history: Workload,
        workload: Workload,
        cluster: Cluster,
        config: SimulationConfig,
        kept: int,
        progress: Callable[[int], None] | None,
    ) -> dict[str, Any]:
        """The schedule of jobs that follow others, from which run times are predicted."""
        if self.model.kind in HOST_KINDS:
            raise InputError(
                f"policy {self.name}: chooses hosts, and predicts from the jobs of the run alone; leave the "
                "history out, or use other estimates"
            )
        if config.kill_at_estimate or (workload.frame["gpu_milli"] < 1000).any():
            raise InputError(
                f"policy {self.name}: learned policies take no history together with jobs that share GPUs or "
                "are killed at their estimates; leave the history out"
            )
        both, begin_s = after_history(workload, history)
        source = WindowedJobs(both, cluster, len(history), len(both), kept)
        settings = config.model_copy(update={"oversize": "drop"})  # of the history; others have been refused
        model = self._model(source, settings)
        network = self.network_for(NetworkSizes.of(model), cluster.name)
        table, first, *_ = model.episode(model.episode_rows[0])
        arrays = _core.replay(model.spec, table, network, progress, first)
        begin_us = round(begin_s * 1e6)
        return arrays | {name: arrays[name] - begin_us for name in ("start_us", "end_us")}

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        """What to start now, one job after another until the network would rather wait.

        Raises:
            InputError: for a network that chooses hosts, or that was trained in another step mode than
                ``instant``: these act in simulations only.
        """
        environment = self.model.environment
        if self.model.kind in HOST_KINDS or environment.step_mode != "instant":
            raise InputError(
                f"policy {self.name}: decides one snapshot at a time only if it selects jobs in step mode "
                f"instant, but it is {self.model.kind} in step mode {environment.step_mode}; simulate with "
                "it from an empty cluster"
            )
        return _core.decide_by_network(snapshot, *self._for(snapshot))

    def observe(
        self, snapshot: _core.Snapshot
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """What the network is shown first of a snapshot: rows of ``jobs``, rows of ``nodes``, ``globals``.

        Raises:
            InputError: if the cluster is one that the network does not take.
        """
        sizes = self.model.sizes
        tokens = _core.observed_sizes(snapshot, self.model.environment.tokens)[0]
        jobs, nodes, overall = _core.observe(snapshot, self._for(snapshot)[0])
        return jobs.reshape(sizes.rows, -1), nodes.reshape(tokens, -1), overall

    def _for(self, snapshot: _core.Snapshot) -> tuple[_core.EnvSpec, NativeNetwork]:
        sizes = _core.observed_sizes(snapshot, self.model.environment.tokens)
        if sizes not in self._deciding:
            self._deciding[sizes] = self._prepared(*sizes)
        return self._deciding[sizes]

    def _prepared(
        self, tokens: int, pools: int, gpus: int, hosts: int
    ) -> tuple[_core.EnvSpec, NativeNetwork]:
        """For snapshots of a cluster of that size."""
        environment, trained = self.model.environment, self.model.sizes
        lookahead = min(gpus, MOST_LOOKAHEAD)
        spec = core_spec(self.model.kind, environment, self.base, _core.Settings())
        set_sizes(spec, environment, trained.rows, tokens, pools, lookahead, hosts)
        sizes = NetworkSizes(
            **trained.to_json() | {"tokens": tokens, "pools": pools, "actions": spec.actions},
        )
        own = self.model.cluster
        if (pools, lookahead) != (trained.pools, min(own.total_gpus, MOST_LOOKAHEAD)):
            raise InputError(
                f"policy {self.name}: was trained on {self._trained_on()}, {trained.pools} pools; a cluster "
                f"of {pools} pools and {gpus} GPUs looks different to it; train the model on that cluster"
            )
        return spec, self.network_for(sizes, "this cluster")

    def network_for(self, sizes: NetworkSizes, cluster: str) -> NativeNetwork:
        """The network for observations of these sizes.

        Args:
            sizes: Of observations and actions.
            cluster: Where they come from, for people.

        Raises:
            InputError: if the network was trained on others.
        """
        self._check_sizes(sizes, cluster)
        return native_network(self.model.network, sizes, self.model.tensors)

    def _check_sizes(self, sizes: NetworkSizes, cluster: str) -> None:
        trained = self.model.sizes
        may_differ = (
            () if self.model.network.kind == "mlp" else ("tokens", "actions", "pools", "choices_per_row")
        )
        names = [*_WORDS, *(field.name for field in fields(sizes) if field.name not in _WORDS)]
        for name in names:
            was, is_now = getattr(trained, name), getattr(sizes, name)
            if was == is_now or (name in may_differ and not self._matters(name)):
                continue
            what = _WORDS.get(name, f"column {name} of observations")
            raise InputError(
                f"policy {self.name}: was trained on {self._trained_on()} with {was} {what}, but on "
                f"{cluster} there are {is_now}; use a cluster like that, or train the model on this one"
            )

    def _matters(self, name: str) -> bool:
        return name in ("choices_per_row", "pools") and self.model.kind == "select-job-and-pool"

    def _trained_on(self) -> str:
        cluster = self.model.cluster
        return f"cluster {cluster.name} ({cluster.node_count:,} nodes, {cluster.total_gpus:,} GPUs)"

    def _model_for(self, workload: Workload, cluster: Cluster, config: SimulationConfig) -> EnvModel:
        """The environment in which all jobs are one episode."""
        wanted = (id(workload), cluster, config)
        known = self._environment  # read once: other threads may replace it
        if known is not None and known[0] == wanted:
            return known[1]
        model = self._model(WindowedJobs(workload, cluster, 0, len(workload), 1), config)
        self._environment = (wanted, model)
        return model

    def _model(self, source: WindowedJobs, config: SimulationConfig) -> EnvModel:
        changes: dict[str, Any] = {**_NOT_OF_THE_MODEL, "simulation": config}
        environment: EnvConfig = self.model.environment.model_copy(update=changes)
        try:
            return EnvModel(self.model.kind, environment, source)
        except InputError as error:
            raise InputError(f"policy {self.name}: {error}") from None
