"""Runs a random case on the native core, through the public API."""

import polars as pl

from differential.cases import Case
from gpuyard import _core
from gpuyard.cluster import Cluster, GpuType, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.policies.base import Express, PolicySpec
from gpuyard.schedule import STATUS_NAMES, Schedule
from gpuyard.simulate import simulate
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.schema import SCHEMA
from reference_simulator import Outcome


def cluster_of(case: Case) -> Cluster:
    types = tuple(GpuType(name=name, speed=speed) for name, speed in case.speeds.items())
    nodes = tuple(
        NodeGroup(
            gpus=node.gpus, type=node.type, cpus=node.cpus, memory_mib=node.memory_mib, owner=node.owner
        )
        if node.gpus or node.cpus is not None
        # A node without GPUs must state its CPUs; unlimited ones are 2^40.
        else NodeGroup(
            gpus=0, type=node.type, cpus=_core.UNLIMITED, memory_mib=node.memory_mib, owner=node.owner
        )
        for node in case.nodes
    )
    return Cluster(gpu_types=types, nodes=nodes)


def workload_of(case: Case) -> Workload:
    rows = [
        {
            "submit_s": job.submit_s,
            "duration_s": job.duration_s or 1e-7,  # 0 is no valid duration; this rounds to it
            "gpus": job.gpus,
            "gpu_milli": job.gpu_milli,
            "cpus": job.cpus,
            "memory_mib": job.memory_mib,
            "estimate_s": None if job.estimate_s is None else job.estimate_s or 1e-7,
            "gpu_types": None if job.gpu_types is None else list(job.gpu_types),
            "priority": job.priority,
            "user": job.user,
            "group": job.group,
            "deadline_s": job.deadline_s,
            "row": position if job.row is None else job.row,
        }
        for position, job in enumerate(case.jobs)
    ]
    schema = {name: SCHEMA[name] for name in rows[0]}
    return make_workload(pl.DataFrame(rows, schema=schema), origin_s=case.settings.origin_s)


def policy_of(case: Case) -> PolicySpec:
    express = Express(*case.policy.express) if case.policy.express else None
    return PolicySpec(case.policy.order, case.policy.backfill, express, case.policy.placement)


def config_of(case: Case) -> SimulationConfig:
    settings = case.settings
    told_nothing = settings.estimates == "requested" and all(job.estimate_s is None for job in case.jobs)
    return SimulationConfig(
        # The API refuses `requested` where nobody requested anything; a scheduler sees the same under `none`.
        estimates="none" if told_nothing else settings.estimates,
        noise_sigma=settings.noise_sigma,
        seed=settings.seed,
        kill_at_estimate=settings.kill_at_estimate,
        locality_penalty=settings.locality_penalty,
        usage_half_life_s=settings.usage_half_life_s,
    )


def run_core(case: Case) -> list[Outcome]:
    return outcomes(simulate(workload_of(case), cluster_of(case), policy_of(case), config_of(case)).schedule)


class StepByStep:
    """The same native policy, asked for one decision at a time on a snapshot."""

    def __init__(self, policy: PolicySpec) -> None:
        self.policy = policy.compile()

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        return _core.decide(snapshot, self.policy)


def run_core_by_snapshots(case: Case) -> list[Outcome]:
    policy = StepByStep(policy_of(case))
    return outcomes(simulate(workload_of(case), cluster_of(case), policy, config_of(case)).schedule)


def outcomes(schedule: Schedule) -> list[Outcome]:
    answer = []
    for i in range(len(schedule)):
        at = slice(schedule.node_offset[i], schedule.node_offset[i + 1])
        nodes = tuple(zip(schedule.node[at].tolist(), schedule.node_gpus[at].tolist(), strict=True))
        answer.append(
            Outcome(
                start_us=int(schedule.start_us[i]),
                end_us=int(schedule.end_us[i]),
                status=STATUS_NAMES[schedule.status[i]],
                nodes=nodes,
                gpu_index=int(schedule.gpu_index[i]),
                backfilled=bool(schedule.backfilled[i]),
            )
        )
    return answer
