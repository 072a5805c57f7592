"""What the simulator remembers: decayed usage (section 8), finished jobs (section 19, `gittins`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from reference.simulator.inputs import Job

UNKNOWN_RUN_TIME_US = 3600 * 10**6


@dataclass
class Usage:
    """Decayed usage of a user or group."""

    gpu_s: float = 0.0
    updated_us: int = 0
    milli: int = 0

    def at(self, now_us: int, half_life_s: float) -> float:
        x = float(now_us - self.updated_us) / 1e6
        f = math.exp2(-(x / half_life_s))
        held = (float(self.milli) / 1000.0) * (half_life_s / 0.6931471805599453) * (1.0 - f)
        return self.gpu_s * f + held

    def add(self, milli: int, now_us: int, half_life_s: float) -> None:
        self.gpu_s = self.at(now_us, half_life_s)
        self.updated_us = now_us
        self.milli += milli


@dataclass
class UsageOverTime:
    """Decayed usage of an association, of which also earlier values are asked for."""

    changes: list[Usage] = field(default_factory=list)  # what it was after each change, by time

    def at(self, moment_us: int, half_life_s: float) -> float:
        before = [usage for usage in self.changes if usage.updated_us <= moment_us]
        return before[-1].at(moment_us, half_life_s) if before else 0.0

    def add(self, milli: int, now_us: int, half_life_s: float) -> None:
        usage = replace(self.changes[-1]) if self.changes else Usage(updated_us=now_us)
        usage.add(milli, now_us, half_life_s)
        self.changes.append(usage)


@dataclass
class Finished:
    """All jobs that have finished, with the run time that counts and the attained service."""

    run_times: list[tuple[Job, int]] = field(default_factory=list)
    gpu_seconds: list[int] = field(default_factory=list)

    def add(self, job: Job, run_time_us: int, attained_us: int) -> None:
        self.run_times.append((job, run_time_us))
        self.gpu_seconds.append(whole_gpu_seconds(attained_us, job))

    def prediction_us(self, job: Job) -> int:
        """Section 19: the mean run time of the finished jobs that are most like this one."""
        alike = (
            lambda other: (other.user, other.group, other.gpus) == (job.user, job.group, job.gpus),
            lambda other: (other.user, other.gpus) == (job.user, job.gpus),
            lambda other: other.user == job.user,
            lambda other: other.gpus == job.gpus,
            lambda other: True,
        )
        for is_alike in alike:
            times = [us for other, us in self.run_times if is_alike(other)]
            if times:
                return max(1, round(float(sum(times)) / float(len(times))))
        return UNKNOWN_RUN_TIME_US

    def gittins_index(self, attained_us: int, job: Job) -> float:
        return gittins_index(self.gpu_seconds, whole_gpu_seconds(attained_us, job))


def whole_gpu_seconds(attained_us: int, job: Job) -> int:
    return attained_us * job.gpus * job.gpu_milli // 10**9


def bucket(x: int) -> int:
    if x < 4:
        return x
    e = x.bit_length() - 1  # floor(log2 x)
    return 4 * (e - 1) + (x >> (e - 2)) % 4


def lower_edge(b: int) -> int:
    if b < 4:
        return b
    e = b // 4 + 1
    return (4 + b % 4) << (e - 2)


def gittins_index(finished: Sequence[int], x: int) -> float:
    """The Gittins index after x GPU-seconds, if finished jobs attained those."""
    k = bucket(x)
    beyond = [other for other in finished if bucket(other) >= k]
    indices = [0.0]
    for j in {bucket(other) for other in beyond}:
        within = [other for other in beyond if bucket(other) <= j]
        p = len(within)
        cost = sum(other - lower_edge(k) for other in within)
        cost += (len(beyond) - p) * (lower_edge(j + 1) - lower_edge(k))
        indices.append(float(p) / float(max(cost, 1)))
    return max(indices)
