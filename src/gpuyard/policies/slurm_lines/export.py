"""The lines of slurm.conf that come nearest to a rule (docs/guide/slurm.md)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.policies.base import RECORDED, Policy
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, Express, PolicySpec
from gpuyard.policies.slurm_lines.classes import by_request, partition_lines
from gpuyard.policies.slurm_lines.draft import Draft
from gpuyard.policies.slurm_lines.job_submit import job_submit_lua
from gpuyard.policies.slurm_lines.lines import SlurmLines
from gpuyard.policies.slurm_lines.routing import Lane, PriorityQos, Routing
from gpuyard.workload import Workload

CLASSES = 4
"""Classes of jobs by what they request, where nobody says."""
FINE = 1_000_000.0
"""A weight for a factor between 0 and 1 that alone decides: priorities are whole numbers."""
MOST_PRIORITIES = 32
LONG = "long"
NEAREST = {
    "lifo": "",
    "random": "",
    "wfp3": "largest+easy+age:86400",
    "unicep": "sjf+easy",
    **dict.fromkeys(("f1", "f2", "f3", "f4"), "saf+easy"),
    "edf": "priority+easy",
    "power-aware": "saf+easy",
    "qssf": "saf+easy",
    "drf": "fair-share+easy",
    "srtf": "sjf+easy",
    **dict.fromkeys(("ssf", "las-2d", "tiresias", "gittins"), "saf+easy"),
    "las": "sjf+easy",
}
"""Orders that Slurm has nothing for, and what could be exported instead; empty: nothing comes near."""


def slurm_lines(
    policy: Policy,
    config: SimulationConfig,
    workload: Workload | None = None,
    cluster: Cluster | None = None,
    *,
    classes: int = CLASSES,
) -> SlurmLines:
    """The lines that come nearest to a policy.

    Args:
        policy: A policy made of rules.
        config: Settings that it runs under; its own go first.
        workload: The log; thresholds are quantiles of what its jobs request.
        cluster: What the jobs run on, with its partitions.
        classes: Classes of jobs by what they request, at most.

    Raises:
        InputError: if Slurm has nothing that comes near, with what to export instead.
    """
    rule = policy.rules
    if rule is None:
        raise InputError(_no_rules(policy))
    draft = Draft(rule, policy.configured(config), workload, cluster, classes)
    add_order = _ORDERS.get(rule.order_name)
    if add_order is None:
        raise InputError(_no_counterpart(rule))
    add_order(draft)
    _BACKFILLS[rule.backfill](draft)
    if rule.admission is not None:
        _add_lane(draft, rule.admission)
    if rule.max_wait_s is not None:
        _add_age(draft, rule.max_wait_s)
    if rule.placement != DEFAULT_PLACEMENT:
        draft.losses.append(
            f"Slurm places jobs in its own way, not by {rule.placement}; the lines are simulated with "
            f"{DEFAULT_PLACEMENT}."
        )
    return _finished(draft)


def _finished(draft: Draft) -> SlurmLines:
    named = draft.cluster is not None and bool(draft.cluster.partitions)
    routing = Routing(draft.classes, draft.qos, named)
    lua = job_submit_lua(routing)
    conf = [*draft.priority_lines(), *draft.scheduler]
    conf += ["AccountingStorageEnforce=associations,limits,qos"] if draft.qos is not None else []
    conf += ["JobSubmitPlugins=lua"] if lua else []
    conf += [] if draft.classes is None else partition_lines(draft.classes, draft.cluster)
    return SlurmLines(
        draft.rule.name,
        tuple(conf),
        tuple(draft.commands),
        lua,
        tuple(draft.losses),
        tuple(draft.notes),
        routing,
    )


def _no_rules(policy: Policy) -> str:
    if policy.name == RECORDED:
        return f"policy {RECORDED} is what your scheduler did and no rule; export sjf+easy or the like"
    return (
        f"policy {policy.name} is a network, and Slurm runs none; export a rule, such as the one "
        "that gpuyard train search finds"
    )


def _no_counterpart(rule: PolicySpec) -> str:
    why = (
        "stops running jobs for better ones"
        if rule.preempts
        else "is nothing that Slurm's priorities can say"
    )
    near = NEAREST.get(rule.order_name, "")
    what = (
        f"the nearest that can be exported is {near}" if near else "nothing that can be exported comes near"
    )
    return f"policy {rule.name}: order {rule.order} {why}; {what}"


def _fifo(draft: Draft) -> None:
    draft.weights = {}


def _smallest(draft: Draft) -> None:
    draft.weights = {"size_weight": FINE, "favor_small": True}
    draft.losses.append(
        "Slurm's job size is the mean of the shares of nodes and CPUs; only for jobs without CPUs does the "
        "simulator count GPUs."
    )


def _largest(draft: Draft) -> None:
    draft.weights = {"gpu_weight": FINE}


def _fair_share(draft: Draft) -> None:
    draft.weights = {"fair_share_weight": FINE}
    by_group = draft.rule.order_name == "group-fair-share"
    draft.losses.append(
        "Fair tree compares accounts (groups) first"
        + (", and within an account users, too." if by_group else ", and users only within an account.")
        + " Usage counts at multiples of PriorityCalcPeriod."
    )
    _add_shares(draft)


def _add_shares(draft: Draft) -> None:
    shares = [("user", name, value) for name, value in draft.config.user_shares.items()]
    shares += [("account", name, value) for name, value in draft.config.group_shares.items()]
    for kind, name, value in shares:
        if value != round(value):
            draft.losses.append(f"Slurm's shares are whole numbers: that of {name}, {value:g}, is rounded.")
        draft.commands.append(
            f"sacctmgr -i modify {kind} where name={name} set fairshare={max(1, round(value))}"
        )


def _multifactor(draft: Draft) -> None:
    config = draft.config
    names = (
        *("age_weight", "fair_share_weight", "size_weight", "partition_weight", "qos_weight"),
        *("gpu_weight", "cpu_weight", "memory_weight", "favor_small", "fair_share"),
    )
    draft.weights = {name: getattr(config, name) for name in names}
    if config.fair_share_weight:
        _add_shares(draft)
    has = draft.workload is None or bool((draft.workload.frame["priority"] != 0).any())
    if config.priority_weight and has:
        draft.losses.append("Slurm has no weight for a job's own priority: priority_weight is left out.")


def _priority(draft: Draft) -> None:
    if draft.workload is None:
        raise InputError(
            f"policy {draft.rule.name}: on Slurm each priority of the log is a QOS; give "
            f"{setting('workload')} and {setting('cluster')}"
        )
    _need_free_qos(draft, "for priorities")
    values = sorted(draft.workload.frame["priority"].unique().to_list())
    if len(values) > MOST_PRIORITIES:
        raise InputError(
            f"policy {draft.rule.name}: the log has {len(values)} priorities, and each would be a QOS; at "
            f"most {MOST_PRIORITIES} are exported"
        )
    draft.qos = PriorityQos(tuple(values))
    draft.weights = {"qos_weight": FINE}
    for place, value in enumerate(values):
        draft.commands.append(f"sacctmgr -i add qos {PriorityQos.name(value)} set priority={place}")
    draft.commands.append(_granted(*(PriorityQos.name(value) for value in values)))
    draft.notes.append("Users ask for their priority with sbatch --qos.")


def _granted(*names: str) -> str:
    return f"sacctmgr -i modify account where name=root set qos+={','.join(names)}"


def _need_free_qos(draft: Draft, purpose: str) -> None:
    if draft.cluster is not None and draft.cluster.qos:
        raise InputError(
            f"policy {draft.rule.name}: on Slurm it needs QOSes {purpose}, and jobs would lose those of "
            f"cluster {draft.cluster.name}; leave them out of its file, or export another policy"
        )
    if draft.qos is not None:
        raise InputError(
            f"policy {draft.rule.name}: on Slurm it needs QOSes for priorities and for the lane, and a "
            "job has one; export it without express"
        )


def _add_lane(draft: Draft, lane: Express) -> None:
    _need_free_qos(draft, "for the express lane")
    if draft.cluster is None:
        raise InputError(
            f"policy {draft.rule.name}: the size of an express lane depends on the cluster; give "
            f"{setting('cluster')}"
        )
    folds, largest = 1.0, 1
    if draft.workload is not None:
        jobs = draft.workload.frame.filter(draft.workload.frame["estimate_s"].fill_null(np.inf) > lane.t0_s)
        requests = jobs["estimate_s"].drop_nulls().to_numpy()
        folds = float(np.median(np.log(requests / lane.t0_s))) if len(requests) else 1.0
        largest = int(jobs["gpus"].max() or 1)  # type: ignore[arg-type]
    share = max(0.0, 1.0 - lane.k * folds)
    gpus = min(draft.cluster.total_gpus, max(largest, int(share * draft.cluster.total_gpus)))
    draft.qos = Lane(lane.t0_s, LONG, gpus)
    draft.commands += [f"sacctmgr -i add qos {LONG} set GrpTRES=gres/gpu={gpus}", _granted(LONG)]
    draft.losses.append(
        f"All jobs above {lane.t0_s:g} s share one limit of {gpus:,} GPUs: what the lane leaves for a job of "
        "their median length. It counts GPUs that long jobs hold, not GPUs that are free, and holds on an "
        "idle cluster, too."
    )


def _add_age(draft: Draft, max_wait_s: float) -> None:
    if not draft.weights:
        return  # the oldest job is first anyway
    others = sum(
        value for name, value in draft.weights.items() if name.endswith("_weight") and name != "age_weight"
    )
    draft.weights |= {"age_weight": max(1.0, others), "max_age_s": max_wait_s}
    draft.losses.append(
        "The age factor grows from the first second on, rather than at the bound: after PriorityMaxAge it "
        "outweighs all other factors together, and before that in part."
    )


def _backfill(**options: Any) -> Callable[[Draft], None]:
    def add(draft: Draft) -> None:
        window_s = options.get("bf_window_s", _window_s(draft))
        draft.add_sched(
            {
                "bf_interval_s": draft.config.bf_interval_s,
                "bf_max_job_test": options["bf_max_job_test"],
                "bf_window_s": window_s,
                "bf_resolution_s": draft.config.bf_resolution_s,
            }
        )
        draft.losses.append(options["loss"])

    return add


def _window_s(draft: Draft) -> float:
    """How far ahead to plan: as stated, else as long as the longest request, in days, at most Slurm's 30."""
    if "bf_window_s" in draft.config.model_fields_set:
        return draft.config.bf_window_s
    day_s = 86400.0
    longest = None if draft.workload is None else draft.workload.frame["estimate_s"].max()
    days = 7 if longest is None else max(1, int(np.ceil(float(longest) / day_s)))  # type: ignore[arg-type]
    return min(days, 30) * day_s


def _strict(draft: Draft) -> None:
    draft.scheduler = ["SchedulerType=sched/builtin"]


def _slurm(draft: Draft) -> None:
    config = draft.config
    names = (
        "bf_interval_s",
        "bf_max_job_test",
        "bf_max_job_part",
        "bf_max_job_user",
        "bf_window_s",
        "bf_resolution_s",
    )
    draft.add_sched({name: getattr(config, name) for name in names})
    for name in names:
        value, unit = getattr(config, name), 60.0 if name == "bf_window_s" else 1.0
        if value % unit:
            draft.losses.append(
                f"{name} is {value:g} s; Slurm has whole {'minutes' if unit > 1 else 'seconds'}."
            )


_PLANS = (
    "Slurm backfills at intervals (bf_interval), and reserves whole nodes for each of the first jobs that "
    "cannot start; {} "
)
_EASY = _PLANS.format("easy keeps single GPUs for the first of them alone, at every event.") + (
    "bf_job_part_count_reserve=1 would come nearer; the simulator does not have it, so it is left out."
)
_BACKFILLS: dict[str, Callable[[Draft], None]] = {
    "strict": _strict,
    "slurm": _slurm,
    "easy": _backfill(bf_max_job_test=1000, loss=_EASY),
    "easy-sjf": _backfill(
        bf_max_job_test=1000, loss=f"{_EASY} It goes through jobs by priority, not the shortest first."
    ),
    "conservative": _backfill(
        bf_max_job_test=5000,
        loss=_PLANS.format(
            "conservative reserves GPUs, keeps its plan, and looks as far ahead as it takes."
        ).strip(),
    ),
    "greedy": _backfill(
        bf_max_job_test=5000,
        bf_window_s=60.0,
        loss="With bf_window=1 only jobs that could start within a minute are reserved for. As with greedy, "
        "large jobs may wait for ever. Slurm passes over jobs at intervals, not at every event.",
    ),
}


def _timed(exponent: float, *, by_gpus: bool, longest_first: bool = False) -> Callable[[Draft], None]:
    def add(draft: Draft) -> None:
        by_request(draft, exponent, by_gpus=by_gpus, longest_first=longest_first)

    return add


def _power(draft: Draft) -> None:
    by_request(draft, draft.rule.order_parameter, by_gpus=True)


_ORDERS: dict[str, Callable[[Draft], None]] = {
    "fifo": _fifo,
    "sjf": _timed(1.0, by_gpus=False),
    "ljf": _timed(1.0, by_gpus=False, longest_first=True),
    "saf": _timed(1.0, by_gpus=True),
    "laf": _timed(1.0, by_gpus=True, longest_first=True),
    "wspt": _timed(2.0, by_gpus=True),
    "power": _power,
    "smallest": _smallest,
    "largest": _largest,
    "fair-share": _fair_share,
    "group-fair-share": _fair_share,
    "multifactor": _multifactor,
    "priority": _priority,
}
EXPORTED = tuple(_ORDERS)
"""Orders that can be exported."""
