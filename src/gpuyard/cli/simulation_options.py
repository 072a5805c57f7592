"""Options of the command line that stand for settings of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gpuyard.cli.parameters import Whole, given_options, option_name, validated
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from gpuyard.config import SimulationConfig


@Parameter(name="*", group="Simulation")
@dataclass(frozen=True)
class SimulationOptions:
    """Settings of a simulation; every policy runs under the same ones."""

    estimates: Annotated[
        Literal["exact", "requested", "noisy", "history", "none"] | None,
        Parameter(help="What policies are told about run times. (default: exact)"),
    ] = None
    noise_sigma: Annotated[
        float | None, Parameter(help="Spread of the error of noisy estimates, in logarithms. (default: 1.0)")
    ] = None
    seed: Annotated[Whole | None, Parameter(help="Key of every random draw. (default: 0)")] = None
    kill_at_estimate: Annotated[
        bool | None,
        Parameter(help="End a job when it has run as long as its estimate. (default: False)", negative=()),
    ] = None
    locality_penalty: Annotated[
        float | None,
        Parameter(help="Slow-down of a gang on twice the fewest nodes: 0.2 = 20 %. (default: 0.0)"),
    ] = None
    oversize: Annotated[
        Literal["error", "drop"] | None,
        Parameter(
            help="Jobs that can never run on the cluster: refuse, or leave out and report. (default: error)"
        ),
    ] = None
    usage_half_life_s: Annotated[
        float | None,
        Parameter(
            name="--usage-half-life",
            group="Fairness",
            help="Half-life of usage in fair-share, s. (default: 604800.0)",
        ),
    ] = None
    user_shares: Annotated[
        str | None,
        Parameter(
            group="Fairness",
            help="Weights of users in fair-share and multifactor, such as ada:2,bo:1. (default: 1 each)",
        ),
    ] = None
    group_shares: Annotated[
        str | None,
        Parameter(group="Fairness", help="Weights of groups in group-fair-share. (default: 1 each)"),
    ] = None
    age_weight: Annotated[
        float | None, Parameter(group="Fairness", help="Weight of age in multifactor. (default: 1000.0)")
    ] = None
    size_weight: Annotated[
        float | None, Parameter(group="Fairness", help="Weight of gang size in multifactor. (default: 100.0)")
    ] = None
    fair_share_weight: Annotated[
        float | None,
        Parameter(group="Fairness", help="Weight of fair share in multifactor. (default: 1000.0)"),
    ] = None
    priority_weight: Annotated[
        float | None, Parameter(group="Fairness", help="Weight of priority in multifactor. (default: 1000.0)")
    ] = None
    max_age_s: Annotated[
        float | None,
        Parameter(
            name="--max-age",
            group="Fairness",
            help="Wait at which age counts in full, s. (default: 604800.0)",
        ),
    ] = None
    group_quotas: Annotated[
        str | None,
        Parameter(
            group="Fairness",
            help="GPUs of groups, such as vision:64,speech:32; the others share the rest. (default: none)",
        ),
    ] = None
    quota_borrowing: Annotated[
        bool | None,
        Parameter(
            group="Fairness",
            help="Let groups use what others leave idle; --no-quota-borrowing forbids it. (default: True)",
        ),
    ] = None
    reschedule_s: Annotated[
        float | None,
        Parameter(
            name="--reschedule",
            group="Preemption",
            help="Policies that preempt also decide this often, s. (default: 60.0)",
        ),
    ] = None
    min_run_s: Annotated[
        float | None,
        Parameter(
            name="--min-run",
            group="Preemption",
            help="No run is stopped before it is this long, s. (default: 300.0)",
        ),
    ] = None
    checkpoint_s: Annotated[
        float | None,
        Parameter(
            name="--checkpoint",
            group="Preemption",
            help="GPUs are kept this long when a job is stopped, s. (default: 3.5, 15 or 30 by gang size)",
        ),
    ] = None
    restore_s: Annotated[
        float | None,
        Parameter(
            name="--restore",
            group="Preemption",
            help="A job that goes on makes no progress this long, s. (default: 3.5, 15 or 30 by gang size)",
        ),
    ] = None
    defragment: Annotated[
        bool | None,
        Parameter(
            group="Preemption",
            help="Move a running job where that makes room for one that does not fit. (default: False)",
            negative=(),
        ),
    ] = None
    tiresias_levels_gpu_s: Annotated[
        str | None,
        Parameter(
            name="--tiresias-levels",
            group="Preemption",
            help="GPU-seconds at which jobs sink to the next level of tiresias. (default: 3600,36000)",
        ),
    ] = None
    starvation_s: Annotated[
        float | None,
        Parameter(
            name="--starvation",
            group="Preemption",
            help="tiresias promotes a job that was queued this long, s. (default: 28800.0)",
        ),
    ] = None
    node_mtbf_s: Annotated[
        float | None,
        Parameter(
            name="--node-mtbf",
            group="Failures",
            help="Mean time between failures of a node, s. (default: never)",
        ),
    ] = None
    node_mttr_s: Annotated[
        float | None,
        Parameter(name="--node-mttr", group="Failures", help="Mean time to repair, s. (default: 3600)"),
    ] = None
    checkpoint_every_s: Annotated[
        float | None,
        Parameter(
            name="--checkpoint-every",
            group="Failures",
            help="A job hit by a failure goes on from the last multiple of this, s. (default: its last stop)",
        ),
    ] = None
    sleep_after_s: Annotated[
        float | None,
        Parameter(
            name="--sleep-after",
            group="Power",
            help="Idle nodes fall asleep after this long, s. (default: never)",
        ),
    ] = None
    wake_s: Annotated[
        float | None,
        Parameter(name="--wake", group="Power", help="Time that a node takes to wake, s. (default: 60)"),
    ] = None
    power_cap_w: Annotated[
        float | None,
        Parameter(
            name="--power-cap",
            group="Power",
            help="The cluster never draws more than this, W. (default: none)",
        ),
    ] = None

    def config(self) -> SimulationConfig:
        """The settings as the simulator takes them."""
        from gpuyard.config import SimulationConfig

        given = given_options(self)
        for name in ("user_shares", "group_shares", "group_quotas"):
            if name in given:
                given[name] = _by_name(option_name(name), given[name])
        if "tiresias_levels_gpu_s" in given:
            given["tiresias_levels_gpu_s"] = given["tiresias_levels_gpu_s"].split(",")
        return validated(SimulationConfig, given)


def _by_name(option: str, text: str) -> dict[str, Any]:
    """Pairs of a name, which may hold colons, and a number."""
    pairs = [part.rpartition(":") for part in text.split(",")]
    if any(not colon for _, colon, _ in pairs):
        raise InputError(
            f"{option} {text!r}: expected name:number pairs joined by commas, such as vision:64,speech:32"
        )
    names = [name for name, _, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{option} {text!r}: {twice!r} is given twice")
    return {name: number for name, _, number in pairs}
