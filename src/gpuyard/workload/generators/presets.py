"""Ready-made workloads by name, each with the cluster it is meant for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpuyard.cluster.model import parse_cluster
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.registry import lookup, register, registered
from gpuyard.workload.formats import Trace
from gpuyard.workload.generators import like  # noqa: F401  (registers its generator)
from gpuyard.workload.generators.base import GeneratorConfig
from gpuyard.workload.generators.bursty import BurstyConfig
from gpuyard.workload.generators.host_farm import HostFarmConfig
from gpuyard.workload.generators.lublin import LublinConfig
from gpuyard.workload.generators.shapes import AllAtOnce, Diurnal, HeavyTail, MarkovModulated
from gpuyard.workload.schema import Workload
from gpuyard.workload.synthetic import DEMO
from gpuyard.workload.synthetic_config import SynthConfig


@dataclass(frozen=True)
class WorkloadPreset:
    """Settings of a generator and the cluster to simulate the workload on.

    Attributes:
        config: The settings.
        cluster: As ``parse_cluster`` reads it; None: the generator draws the cluster too.
    """

    config: GeneratorConfig
    cluster: str | None

    def changed(self, **settings: Any) -> GeneratorConfig:
        """The settings with some of them replaced.

        Raises:
            InputError: naming the setting that is wrong.
        """
        model = type(self.config)
        try:
            return model.model_validate({**self.config.model_dump(), **settings})
        except ValidationError as error:
            raise refusal(
                error, f"preset {self.config.name}", known=lambda _: dict.fromkeys(model.model_fields)
            ) from None


def preset_workloads() -> Mapping[str, Callable[[], WorkloadPreset]]:
    """Functions that make the presets, by name; their docstrings' first lines describe them."""
    return registered("workload-preset")


def preset_workload(name: str, **settings: Any) -> Trace:
    """Draw the workload of a preset, with the cluster it is meant for.

    Args:
        name: Of the preset.
        settings: To replace, such as ``seed=3`` or ``jobs=500``.

    Raises:
        InputError: for an unknown name, with the closest known ones, or a wrong setting.
    """
    preset: WorkloadPreset = lookup("workload-preset", name)()
    trace = preset.changed(**settings).generate()
    return trace if preset.cluster is None else Trace(trace.workload, parse_cluster(preset.cluster))


def remake(workload: Workload) -> Trace:
    """Make a generated workload again from its history alone.

    Raises:
        InputError: if it was not made by a generator, or was changed afterwards.
    """
    history = workload.metadata.history
    generators = registered("workload-generator")
    if len(history) != 1 or history[0].name not in generators:
        raise InputError(f"workload {workload.metadata.name!r}: its history is not that of a generator alone")
    config: type[GeneratorConfig] = generators[history[0].name]
    return config.model_validate(history[0].settings).generate()


@register("workload-preset", "demo")
def demo() -> WorkloadPreset:
    """2,000 jobs at load 0.95 on 64 GPUs, the workload of gpuyard demo."""
    return WorkloadPreset(DEMO, "demo")


@register("workload-preset", "poisson")
def poisson() -> WorkloadPreset:
    """Poisson arrivals, gangs of 1 to 8, lognormal durations, load 0.9 on 512 GPUs."""
    return WorkloadPreset(SynthConfig(name="poisson"), "64x8")


@register("workload-preset", "diurnal")
def diurnal() -> WorkloadPreset:
    """Working days and weekends, users with habits, round and generous requests, load 0.8 on 64 GPUs."""
    config = SynthConfig(
        name="diurnal",
        cluster_gpus=64,
        load=0.8,
        arrivals=Diurnal(),
        users=60,
        user_habits=0.5,
        duration_with_gpus=0.3,
        overestimation=3.0,
        underestimated_share=0.05,
        round_estimates=True,
        whole_seconds=True,
    )
    return WorkloadPreset(config, "8x8")


@register("workload-preset", "heavy-tail")
def heavy_tail() -> WorkloadPreset:
    """A tenth of the jobs from a Pareto tail up to 14 days that holds most of the work, 64 GPUs."""
    config = SynthConfig(
        name="heavy-tail",
        cluster_gpus=64,
        durations=HeavyTail(),
        duration_median_s=300.0,
        duration_sigma=1.5,
        duration_max_s=14 * 86_400.0,
        duration_with_gpus=0.3,
        users=60,
        user_habits=0.5,
        overestimation=2.5,
    )
    return WorkloadPreset(config, "8x8")


@register("workload-preset", "surges")
def surges() -> WorkloadPreset:
    """Markov-modulated arrivals: quiet hours, and surges of half an hour at ten times the rate, 64 GPUs."""
    config = SynthConfig(
        name="surges", cluster_gpus=64, arrivals=MarkovModulated(), users=60, user_habits=0.5
    )
    return WorkloadPreset(config, "8x8")


@register("workload-preset", "all-at-once")
def all_at_once() -> WorkloadPreset:
    """1,000 jobs that all wait from the start, for makespans on 64 GPUs."""
    config = SynthConfig(name="all-at-once", jobs=1_000, cluster_gpus=64, arrivals=AllAtOnce())
    return WorkloadPreset(config, "8x8")


@register("workload-preset", "bursty-8gpu")
def bursty_8gpu() -> WorkloadPreset:
    """400 jobs in six bursts on 8 GPUs; long jobs are wide, short ones important."""
    return WorkloadPreset(BurstyConfig(), "1x8")


@register("workload-preset", "lublin")
def lublin() -> WorkloadPreset:
    """The model of Lublin and Feitelson, all jobs, 256 processors."""
    return WorkloadPreset(LublinConfig(), "256x1")


@register("workload-preset", "lublin-batch")
def lublin_batch() -> WorkloadPreset:
    """The model of Lublin and Feitelson, batch jobs only, 256 processors."""
    return WorkloadPreset(LublinConfig(name="lublin-batch", kind="batch"), "256x1")


@register("workload-preset", "host-farm")
def host_farm() -> WorkloadPreset:
    """5,000 jobs of cores and memory on a drawn farm of about 32 hosts without GPUs."""
    return WorkloadPreset(HostFarmConfig(), None)
