"""Section 4 of docs/contract/slurm.md: the order `multifactor`, which is Slurm's priority."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from reference.simulator.cluster import allowed_pools, least_nodes
from reference.simulator.inputs import Job, Request, Settings, to_s, to_us
from reference.simulator.limits import partition_of, qos_of
from reference.simulator.state import State

Association = tuple[str, str]  # (group, user)
Usages = Mapping[Association, float]


def score(state: State, request: Request) -> float:
    settings, job = state.settings, request.job
    p = settings.age_weight * age_factor(state, request)
    p = p + settings.fair_share_weight * fair_share_factor(state, job)
    p = p + settings.size_weight * size_factor(state, job)
    p = p + settings.partition_weight * partition_factor(state, job)
    p = p + settings.qos_weight * qos_factor(state, job)
    for weight, asked, total in (
        (settings.gpu_weight, job.size, gpus_of_partition(state, job)),
        (settings.cpu_weight, float(job.cpus), cpus_of_partition(state, job)),
        (settings.memory_weight, float(job.memory_mib), memory_of_partition(state, job)),
    ):
        if total > 0:
            p = p + weight * (asked / float(total))
    p = p + settings.priority_weight * job.priority
    return -float(math.floor(max(p, 1.0)))


def calculated_us(now_us: int, settings: Settings) -> int:
    """B: when priorities were last calculated."""
    every_us = max(1, to_us(settings.priority_calc_s))
    return now_us // every_us * every_us


# --- factors of a job -----------------------------------------------------------------------------------


def age_factor(state: State, request: Request) -> float:
    entered_us = state.kept_of(request.id).entered_us
    x = to_s(max(calculated_us(state.now_us, state.settings) - entered_us, 0))
    return min(x / state.settings.max_age_s, 1.0)


def size_factor(state: State, job: Job) -> float:
    given_cpus = [node.cpus for node in state.nodes if node.cpus is not None]
    if job.cpus > 0 and given_cpus:
        fewest = min(least_nodes(pool, job) for pool in allowed_pools(state.pools, job))
        part_of_nodes = float(fewest) / float(len(state.nodes))
        size = (part_of_nodes + float(job.cpus) / float(sum(given_cpus))) / 2.0
    else:
        cluster_gpus = sum(node.gpus for node in state.nodes)
        size = job.size / float(cluster_gpus) if cluster_gpus > 0 else 0.0
    size = min(size, 1.0)
    return 1.0 - size if state.settings.favor_small else size


def partition_factor(state: State, job: Job) -> float:
    largest = max((partition.priority_job_factor for partition in state.partitions), default=0)
    partition = partition_of(job, state.partitions)
    return 0.0 if partition is None or largest == 0 else float(partition.priority_job_factor) / float(largest)


def qos_factor(state: State, job: Job) -> float:
    largest = max((quality.priority for quality in state.qos), default=0)
    quality = qos_of(job, state.qos)
    return 0.0 if quality is None or largest == 0 else float(quality.priority) / float(largest)


def nodes_of_partition(state: State, job: Job) -> list[int]:
    partition = partition_of(job, state.partitions)
    return list(range(len(state.nodes))) if partition is None else list(partition.nodes)


def gpus_of_partition(state: State, job: Job) -> int:
    return sum(state.nodes[id].gpus for id in nodes_of_partition(state, job))


def cpus_of_partition(state: State, job: Job) -> int:
    return sum(state.nodes[id].cpus or 0 for id in nodes_of_partition(state, job))


def memory_of_partition(state: State, job: Job) -> int:
    return sum(state.nodes[id].memory_mib or 0 for id in nodes_of_partition(state, job))


# --- fair shares ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """Usage and shares of groups and associations; sums are taken in order of names."""

    usage: dict[Association, float]  # u
    group_usage: dict[str, float]  # U
    total: float  # T
    share: dict[Association, float]  # sigma
    group_share: dict[str, float]  # Sigma


def fair_share_factor(state: State, job: Job) -> float:
    """The factor of the job's association."""
    moment_us, half_life_s = (
        calculated_us(state.now_us, state.settings),
        state.settings.usage_half_life_s,
    )
    usage = {
        association: state.association_usage[association].at(moment_us, half_life_s)
        if association in state.association_usage
        else 0.0
        for association in state.associations
    }
    return factors(usage, state.settings)[job.group, job.user]


def factors(usage: Usages, settings: Settings) -> dict[Association, float]:
    """The factor of each association, given what each has used."""
    shares = make_shares(usage, settings)
    return tree_factors(shares) if settings.fair_share == "tree" else classic_factors(shares)


def make_shares(usage: Usages, settings: Settings) -> Shares:
    associations = sorted(usage)
    groups = sorted({group for group, _ in associations})
    group_usage, user_weights = dict.fromkeys(groups, 0.0), dict.fromkeys(groups, 0.0)
    for group, user in associations:
        group_usage[group] += usage[group, user]
        user_weights[group] += settings.user_shares.get(user, 1.0)
    total, group_weights = 0.0, 0.0
    for group in groups:
        total += group_usage[group]
        group_weights += settings.group_shares.get(group, 1.0)
    share = {
        (group, user): settings.user_shares.get(user, 1.0) / user_weights[group]
        for group, user in associations
    }
    group_share = {group: settings.group_shares.get(group, 1.0) / group_weights for group in groups}
    return Shares({each: usage[each] for each in associations}, group_usage, total, share, group_share)


def classic_factors(shares: Shares) -> dict[Association, float]:
    answer = {}
    for (group, user), u in shares.usage.items():
        v, group_v = 0.0, 0.0
        if shares.total != 0.0:
            v, group_v = u / shares.total, shares.group_usage[group] / shares.total
        sigma = shares.share[group, user]
        e = v + (group_v - v) * sigma
        answer[group, user] = math.exp2(-(e / (sigma * shares.group_share[group])))
    return answer


def tree_factors(shares: Shares) -> dict[Association, float]:
    count = len(shares.usage)
    answer: dict[Association, float] = {}
    place = 0
    for together in lists_of_associations(shares):
        level_before, f = None, 0
        for association in together:
            level = level_of_association(shares, association)
            if level != level_before:
                level_before, f = level, place
            answer[association] = float(count - f) / float(count)
            place += 1
    return answer


def lists_of_associations(shares: Shares) -> list[list[Association]]:
    """Associations by level, descending; one list for all groups of the same level, highest first."""
    levels = {group: level_of_group(shares, group) for group in shares.group_usage}
    lists = []
    for level in sorted(set(levels.values()), reverse=True):
        together = [association for association in shares.usage if levels[association[0]] == level]
        lists.append(sorted(together, key=lambda each: (-level_of_association(shares, each), each)))
    return lists


def level_of_group(shares: Shares, group: str) -> float:
    return level(shares.group_share[group], shares.group_usage[group], shares.total)


def level_of_association(shares: Shares, association: Association) -> float:
    return level(shares.share[association], shares.usage[association], shares.group_usage[association[0]])


def level(share: float, used: float, total: float) -> float:
    """The share over the part that was used; infinite if that is nothing, or rounds to nothing."""
    part = used / total if used != 0.0 else 0.0
    return share / part if part != 0.0 else math.inf
