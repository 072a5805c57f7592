"""Runs a random case on the native core, through the public API."""

from dataclasses import asdict

import numpy as np
import polars as pl

from differential.cases import Case
from gpuyard import _core
from gpuyard.cluster.model import Cluster, GpuType, NodeGroup, Partition, Qos
from gpuyard.config import SimulationConfig
from gpuyard.native.beginning import Beginning
from gpuyard.native.schedule import RUN_ENDINGS, STATUS_NAMES, Schedule
from gpuyard.policies.base import Decider
from gpuyard.policies.grammar import Express, PolicySpec
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.schema import SCHEMA
from reference.simulator.simulator import Job, Outcome, Run


def cluster_of(case: Case) -> Cluster:
    names = dict.fromkeys([*case.speeds, *case.watts])
    types = tuple(
        GpuType(
            name=name,
            speed=case.speeds.get(name, 1.0),
            idle_w=case.watts[name][0] if name in case.watts else None,
            peak_w=case.watts[name][1] if name in case.watts else None,
        )
        for name in names
    )
    nodes = tuple(
        NodeGroup(
            gpus=node.gpus,
            type=node.type,
            cpus=node.cpus,
            memory_mib=node.memory_mib,
            owner=node.owner,
            idle_w=node.idle_w,
        )
        if node.gpus or node.cpus is not None
        # A node without GPUs must state its CPUs; unlimited ones are 2^40.
        else NodeGroup(
            gpus=0,
            type=node.type,
            cpus=_core.UNLIMITED,
            memory_mib=node.memory_mib,
            owner=node.owner,
            idle_w=node.idle_w,
        )
        for node in case.nodes
    )
    partitions = tuple(
        Partition(**asdict(partition) | {"nodes": ",".join(map(str, partition.nodes))})
        for partition in case.partitions
    )
    qos = tuple(Qos(**asdict(quality)) for quality in case.qos)
    return Cluster(gpu_types=types, nodes=nodes, partitions=partitions, qos=qos)


def workload_of(case: Case) -> Workload:
    return _workload(case.jobs, case.settings.origin_s, case.settings.epoch_s)


def history_of(case: Case) -> Workload | None:
    return _workload(case.history, 0.0) if case.history else None


def _workload(jobs: list[Job], origin_s: float, epoch_s: float = 0.0) -> Workload:
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
            "nodes": job.nodes,
            "source_id": source_id(position),
            "partition": job.partition,
            "qos": job.qos,
            "after": "|".join(map(source_id, job.after)),
        }
        for position, job in enumerate(jobs)
    ]
    schema = {name: SCHEMA[name] for name in rows[0]}
    return make_workload(pl.DataFrame(rows, schema=schema), origin_s=origin_s, epoch_s=epoch_s)


def source_id(position: int) -> str:
    """The id of a job in its log, which says nothing about its position."""
    return f"{(position * 7919) % 100_003}_{position}"


def policy_of(case: Case) -> PolicySpec:
    express = Express(*case.policy.express) if case.policy.express else None
    policy = case.policy
    return PolicySpec(policy.order, policy.backfill, express, policy.placement, policy.max_wait_s)


def config_of(case: Case) -> SimulationConfig:
    settings = case.settings
    told_nothing = settings.estimates == "requested" and all(job.estimate_s is None for job in case.jobs)
    names = [name for name in SimulationConfig.model_fields if hasattr(settings, name)]
    values = {name: getattr(settings, name) for name in names}
    # The API refuses `requested` where nobody requested anything; a scheduler sees the same under `none`.
    return SimulationConfig(**values | {"estimates": "none" if told_nothing else settings.estimates})


def beginning_of(case: Case) -> Beginning | None:
    if case.given is None:
        return None
    jobs, start_us, nodes = zip(*case.given.starts, strict=True) if case.given.starts else ((), (), ())
    return Beginning(
        case.given.decides_from_us, np.array(jobs, np.int64), np.array(start_us, np.int64), tuple(nodes)
    )


def schedule_of(case: Case) -> Schedule:
    return _schedule(case, policy_of(case))


def _schedule(case: Case, policy: PolicySpec | Decider) -> Schedule:
    return simulate(
        workload_of(case),
        cluster_of(case),
        policy,
        config_of(case),
        history=history_of(case),
        beginning=beginning_of(case),
    ).schedule


def run_core(case: Case) -> list[Outcome]:
    return outcomes(schedule_of(case))


class StepByStep:
    """The same native policy, asked for one decision at a time on a snapshot."""

    def __init__(self, policy: PolicySpec) -> None:
        self.preempts = policy.preempts
        self.policy = policy.compile()

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        return _core.decide(snapshot, self.policy)


def schedule_by_snapshots(case: Case) -> Schedule:
    return _schedule(case, StepByStep(policy_of(case)))


def run_core_by_snapshots(case: Case) -> list[Outcome]:
    return outcomes(schedule_by_snapshots(case))


def runs(schedule: Schedule) -> list[Run]:
    pieces = schedule.pieces()
    answer = []
    for i in range(len(pieces)):
        at = slice(pieces.node_offset[i], pieces.node_offset[i + 1])
        nodes = tuple(zip(pieces.node[at].tolist(), pieces.node_gpus[at].tolist(), strict=True))
        answer.append(
            Run(
                job=int(pieces.entry[i]),
                taken_us=int(pieces.taken_us[i]),
                begin_us=int(pieces.begin_us[i]),
                stop_us=int(pieces.stop_us[i]),
                released_us=int(pieces.released_us[i]),
                ending=RUN_ENDINGS[pieces.ending[i]],
                restore_us=int(pieces.restore_us[i]),
                lost_us=int(pieces.lost_us[i]),
                nodes=nodes,
                gpu_index=int(pieces.gpu_index[i]),
            )
        )
    return sorted(answer, key=lambda run: (run.begin_us, run.job))


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
