"""Built-in clusters. Counts come from the traces' own files and papers; every speed is 1."""

from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, GpuType, NodeGroup
from gpuyard.registry import register


@register("cluster", "demo")
def demo() -> Cluster:
    """8 nodes of 8 GPUs: small, quick, busy."""
    return Cluster(name="demo", nodes=(_nodes(8, 8, "gpu"),))


@register("cluster", "philly")
def philly() -> Cluster:
    """Microsoft Philly 2017: 2,490 GPUs (321 nodes of 2, 231 of 8); its trace loads it to 0.15 only.

    The models are undisclosed; P100 and P40 are what other work assumes. How many nodes of each
    kind is as the paper is remembered; their sum, 552, agrees with the trace.
    """
    p100 = KNOWN_GPU_TYPES["p100"].model_copy(update={"memory_mib": 12 * 1024})
    return Cluster(name="philly", gpu_types=(p100,), nodes=(_nodes(321, 2, "p100"), _nodes(231, 8, "p40")))


@register("cluster", "philly-contended")
def philly_contended() -> Cluster:
    """20 nodes of 8, on which Philly has load 2.3 and long queues."""
    return Cluster(name="philly-contended", nodes=(_nodes(20, 8, "p40"),))


@register("cluster", "philly-steady")
def philly_steady() -> Cluster:
    """52 nodes of 8, on which Philly has load 0.90."""
    return Cluster(name="philly-steady", nodes=(_nodes(52, 8, "p40"),))


@register("cluster", "helios-venus")
def helios_venus() -> Cluster:
    """SenseTime Helios 2020, Venus: 133 nodes of 8 Volta GPUs; durations cut at 48 h load it to 0.5 only."""
    return Cluster(name="helios-venus", nodes=(_nodes(133, 8, "v100"),))


@register("cluster", "venus-contended")
def venus_contended() -> Cluster:
    """48 nodes of 8, on which Venus (durations cut at 48 h) has load 1.4 and long queues."""
    return Cluster(name="venus-contended", nodes=(_nodes(48, 8, "v100"),))


@register("cluster", "venus-steady")
def venus_steady() -> Cluster:
    """71 nodes of 8, on which Venus (durations cut at 48 h) has load 0.92."""
    return Cluster(name="venus-steady", nodes=(_nodes(71, 8, "v100"),))


@register("cluster", "helios-earth")
def helios_earth() -> Cluster:
    """SenseTime Helios 2020, Earth: 143 nodes of 8 Volta GPUs."""
    return Cluster(name="helios-earth", nodes=(_nodes(143, 8, "v100"),))


@register("cluster", "helios-saturn")
def helios_saturn() -> Cluster:
    """SenseTime Helios 2020, Saturn: 262 nodes of 8 GPUs, Pascal and Volta mixed.

    How many of each is not published, and the log does not tell them apart: they are one type here.
    """
    return Cluster(
        name="helios-saturn",
        gpu_types=(GpuType(name="pascal-volta"),),
        nodes=(_nodes(262, 8, "pascal-volta"),),
    )


@register("cluster", "helios-uranus")
def helios_uranus() -> Cluster:
    """SenseTime Helios 2020, Uranus: 264 nodes of 8 Pascal GPUs."""
    return Cluster(
        name="helios-uranus", gpu_types=(GpuType(name="pascal"),), nodes=(_nodes(264, 8, "pascal"),)
    )


@register("cluster", "pai")
def pai() -> Cluster:
    """Alibaba PAI 2020: 1,897 nodes, 6,742 GPUs of five types; the 60,000-task sample loads it to 0.07 only.

    From pai_machine_spec, with its 83 CPU nodes. Types are named as in the trace; MISC stands for K40m, K80
    and M60.
    """
    return Cluster(
        name="pai",
        gpu_types=(
            _alias("P100", "p100"),
            _alias("T4", "t4"),
            GpuType(name="MISC"),
            _alias("V100M32", "v100-32gb"),
            _alias("V100", "v100"),
        ),
        nodes=(
            _nodes(798, 2, "P100", cpus=64, gib=512),
            _nodes(497, 2, "T4", cpus=96, gib=512),
            _nodes(280, 8, "MISC", cpus=96, gib=512),
            _nodes(135, 8, "V100M32", cpus=96, gib=384),
            _nodes(59, 8, "V100", cpus=96, gib=512),
            _nodes(45, 8, "V100", cpus=96, gib=384),
            _nodes(83, 0, "cpu", cpus=96, gib=512),
        ),
    )


@register("cluster", "openb")
def openb() -> Cluster:
    """Alibaba openb 2023: 1,213 GPU nodes, 6,212 GPUs of seven types; the trace loads it to 0.002 only.

    From openb_node_list_gpu_node. Types are named as in the trace; G2 and G3 are undisclosed models.
    """
    return Cluster(
        name="openb",
        gpu_types=(
            GpuType(name="G2"),
            _alias("T4", "t4"),
            _alias("P100", "p100"),
            GpuType(name="G3"),
            _alias("V100M16", "v100"),
            _alias("V100M32", "v100-32gb"),
            _alias("A10", "a10"),
        ),
        nodes=(
            _nodes(549, 8, "G2", cpus=96, gib=384),
            _nodes(387, 2, "T4", cpus=104, gib=512),
            _nodes(17, 4, "T4", cpus=96, gib=384),
            _nodes(107, 2, "P100", cpus=16, gib=120),
            _nodes(22, 2, "P100", cpus=64, gib=256),
            _nodes(2, 2, "P100", cpus=8, gib=60),
            _nodes(3, 1, "P100", cpus=8, gib=60),
            _nodes(39, 8, "G3", cpus=128, gib=768),
            _nodes(28, 4, "V100M16", cpus=32, gib=128),
            _nodes(19, 1, "V100M16", cpus=8, gib=32),
            _nodes(7, 8, "V100M16", cpus=64, gib=256),
            _nodes(1, 8, "V100M16", cpus=82, gib=336),
            _nodes(21, 8, "V100M32", cpus=96, gib=768),
            _nodes(9, 4, "V100M32", cpus=48, gib=368),
            _nodes(2, 1, "A10", cpus=128, gib=1024),
        ),
    )


@register("cluster", "pai-contended")
def pai_contended() -> Cluster:
    """60 nodes of 8, on which the 60,000-task sample of PAI has load 0.94."""
    return Cluster(name="pai-contended", nodes=(_nodes(60, 8, "gpu"),))


@register("cluster", "openb-contended")
def openb_contended() -> Cluster:
    """2 nodes of 8 (G3), on which openb has load 0.90 over its span and far more in its last days."""
    return Cluster(
        name="openb-contended",
        gpu_types=(GpuType(name="G3"),),
        nodes=(_nodes(2, 8, "G3", cpus=128, gib=768),),
    )


@register("cluster", "farm-small")
def farm_small() -> Cluster:
    """A farm of 10 hosts without GPUs: 8 to 128 cores, 32 to 1,024 GB."""
    return _farm("farm-small", (3, 3, 2, 1, 1))


@register("cluster", "farm-large")
def farm_large() -> Cluster:
    """A farm of 200 hosts without GPUs: 8 to 128 cores, 32 to 1,024 GB."""
    return _farm("farm-large", (60, 60, 40, 20, 20))


def _farm(name: str, counts: tuple[int, ...]) -> Cluster:
    sizes = ((8, 32), (16, 64), (32, 256), (64, 512), (128, 1024))
    hosts = (
        _nodes(count, 0, "cpu", cpus=cpus, gib=gib) for count, (cpus, gib) in zip(counts, sizes, strict=True)
    )
    return Cluster(name=name, nodes=tuple(hosts))


def _nodes(
    count: int, gpus: int, gpu_type: str, cpus: int | None = None, gib: int | None = None
) -> NodeGroup:
    memory_mib = None if gib is None else gib * 1024
    return NodeGroup(count=count, gpus=gpus, type=gpu_type, cpus=cpus, memory_mib=memory_mib)


def _alias(name: str, known: str) -> GpuType:
    """A well-known type under the trace's own name, so that the types jobs ask for match."""
    return KNOWN_GPU_TYPES[known].model_copy(update={"name": name})
