"""The jobs of the experiment, drawn from a seed, and the cluster they are meant for.

Run times are seconds, so that a run takes minutes; limits are minutes, because Slurm knows no shorter ones.
Users therefore ask for much more than they need, as on real clusters.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.fidelity.slurm_box import BoxSettings

NODES, GPUS_PER_NODE = 8, 8
CPUS_PER_GPU = 2
SHORT_MAX_MINUTES = 2
ACCOUNTS = {"physics": 2, "vision": 1, "language": 1}
"""Shares of accounts."""
USERS = {"games": "physics", "news": "physics", "proxy": "vision", "irc": "vision", "backup": "language"}
"""Accounts of users; these users exist on every Debian."""
QOS_PRIORITY = {"normal": 0, "high": 10}

_USER_SHARES = (0.30, 0.15, 0.25, 0.12, 0.18)
_GPUS = (1, 2, 3, 4, 6, 8, 12, 16)
MIXES = {
    "large": (0.42, 0.18, 0.04, 0.15, 0.03, 0.11, 0.02, 0.05),
    "small": (0.72, 0.16, 0.02, 0.07, 0.01, 0.014, 0.003, 0.003),
}
"""Shares of jobs by gang size. Jobs that wait for whole nodes make schedules chaotic: a pass of the scheduler
that comes a second earlier moves all that follows. Slurm itself repeats ``small`` better than ``large``."""
_RUN_MEDIAN_S, _RUN_SIGMA, _RUN_RANGE_S = 7.0, 0.75, (2.0, 60.0)
_ASKED_MINUTES, _ASKED_SHARES = (1, 2, 3, 4, 5), (0.35, 0.25, 0.20, 0.10, 0.10)
_HIGH_SHARE = 0.12
_SHORT_SHARE = 0.45
"""Of the jobs that may go there."""


@dataclass(frozen=True)
class StreamJob:
    """One job to submit.

    Attributes:
        submit_s: Seconds after the first job.
        run_s: How long it runs.
        limit_minutes: Asked for.
        gpus: In all, on ``nodes`` nodes.
        nodes: How many.
        user: Who submits it.
        account: Of the user.
        partition: Where it waits.
        qos: As what.
    """

    submit_s: float
    run_s: float
    limit_minutes: int
    gpus: int
    nodes: int
    user: str
    account: str
    partition: str
    qos: str

    def options(self) -> tuple[str, ...]:
        """What sbatch takes."""
        per_node = self.gpus // self.nodes
        return (
            *(f"--nodes={self.nodes}", "--ntasks-per-node=1", f"--gres=gpu:{per_node}"),
            *(f"--cpus-per-task={per_node * CPUS_PER_GPU}", f"--mem={per_node * 1000}"),
            *(f"--time={self.limit_minutes}", f"--uid={self.user}", f"--account={self.account}"),
            *(f"--partition={self.partition}", f"--qos={self.qos}"),
        )

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def draw_stream(load: float, jobs: int, seed: int, mix: str = "large") -> list[StreamJob]:
    """Jobs in the order of their arrival, a Poisson process.

    Args:
        load: GPU-seconds that arrive per GPU-second of the cluster.
        jobs: How many.
        seed: The same jobs for the same seed; another load only moves their arrivals.
        mix: Of gang sizes.
    """
    draw = np.random.default_rng(seed)
    run_s = np.clip(draw.lognormal(np.log(_RUN_MEDIAN_S), _RUN_SIGMA, jobs), *_RUN_RANGE_S).round(1)
    gpus = draw.choice(_GPUS, jobs, p=MIXES[mix])
    user = draw.choice(list(USERS), jobs, p=_USER_SHARES)
    minutes = np.maximum(draw.choice(_ASKED_MINUTES, jobs, p=_ASKED_SHARES), np.ceil((run_s + 15) / 60))
    high = draw.random(jobs) < _HIGH_SHARE
    short = (draw.random(jobs) < _SHORT_SHARE) & (minutes <= SHORT_MAX_MINUTES)
    gaps = draw.exponential(1.0, jobs)
    gaps[0] = 0
    length_s = float((gpus * run_s).sum()) / (NODES * GPUS_PER_NODE * load)
    submit_s = (np.cumsum(gaps) * length_s / gaps.sum()).round(3)
    return [
        StreamJob(
            submit_s=float(submit_s[i]),
            run_s=float(run_s[i]),
            limit_minutes=int(minutes[i]),
            gpus=int(gpus[i]),
            nodes=1 if gpus[i] <= GPUS_PER_NODE else 2,
            user=str(user[i]),
            account=USERS[str(user[i])],
            partition="short" if short[i] else "batch",
            qos="high" if high[i] else "normal",
        )
        for i in range(jobs)
    ]


def cluster_settings() -> BoxSettings:
    """Eight nodes of eight GPUs; half of them also take short jobs first."""
    billing = 'TRESBillingWeights="GRES/gpu=1.0"'
    return BoxSettings(
        nodes=NODES,
        gpus_per_node=GPUS_PER_NODE,
        cpus_per_node=32,
        memory_mib_per_node=64_000,
        accounting=True,
        accounts=_accounts(),
        partitions=(
            f"PartitionName=batch Nodes=gn[1-8] Default=YES MaxTime=10 PriorityTier=1 PriorityJobFactor=1 "
            f"State=UP {billing}",
            f"PartitionName=short Nodes=gn[5-8] MaxTime={SHORT_MAX_MINUTES} PriorityTier=2 "
            f"PriorityJobFactor=2 State=UP {billing}",
        ),
        lines=(
            "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=1,"
            "bf_resolution=1,bf_continue,bf_max_job_test=500,bf_window=60",
            "PriorityType=priority/multifactor",
            "PriorityWeightAge=1000",
            "PriorityMaxAge=00:05:00",
            "PriorityWeightFairshare=2000",
            "PriorityWeightJobSize=500",
            "PriorityWeightPartition=500",
            "PriorityWeightQOS=1000",
            "PriorityCalcPeriod=1",
            "PriorityDecayHalfLife=00:02:00",
            "AccountingStorageEnforce=associations,limits,qos",
            "MinJobAge=60",
            "SlurmctldDebug=info",
        ),
    )


def _accounts() -> tuple[tuple[str, ...], ...]:
    """Accounts, users and QOS, as arguments of sacctmgr."""
    allowed = (f"QOS={','.join(QOS_PRIORITY)}", "DefaultQOS=normal", "Fairshare=1")
    qos: list[tuple[str, ...]] = [
        (
            *(("modify", "qos", name, "set") if name == "normal" else ("add", "qos", name)),
            f"Priority={priority}",
        )
        for name, priority in QOS_PRIORITY.items()  # Slurm itself makes the QOS normal
    ]
    accounts = [("add", "account", name, f"Fairshare={share}") for name, share in ACCOUNTS.items()]
    users = [("add", "user", user, f"Account={account}", *allowed) for user, account in USERS.items()]
    return (*qos, *accounts, *users)
