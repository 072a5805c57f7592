"""The heuristics that the native core computes, by name. Their formulas are in docs/simulator.md."""

from dataclasses import dataclass

from gpuyard.registry import register


@dataclass(frozen=True)
class Heuristic:
    """A rule of the native core.

    Attributes:
        name: As in a policy's name.
        summary: One line for people.
        uses_estimates: Whether it needs run time estimates to do anything useful.
    """

    name: str
    summary: str
    uses_estimates: bool = False


def _register_all(kind: str, *heuristics: Heuristic) -> None:
    for heuristic in heuristics:
        register(kind, heuristic.name)(heuristic)


_register_all(
    "order",
    Heuristic("fifo", "first come, first served"),
    Heuristic("lifo", "last come, first served"),
    Heuristic("sjf", "shortest estimated run time first", uses_estimates=True),
    Heuristic("ljf", "longest estimated run time first", uses_estimates=True),
    Heuristic("smallest", "fewest GPUs first"),
    Heuristic("largest", "most GPUs first"),
    Heuristic("saf", "smallest area (estimate x GPUs) first", uses_estimates=True),
    Heuristic("laf", "largest area (estimate x GPUs) first", uses_estimates=True),
    Heuristic("wspt", "Smith's index for bounded slowdown: estimate x max(estimate, 10 s) x GPUs", True),
    Heuristic("wfp3", "longest wait against its estimate, and large, first", uses_estimates=True),
    Heuristic("unicep", "longest wait against its estimate, and small, first", uses_estimates=True),
    Heuristic("f1", "fitted score: log10(r) n + 870 log10(s)", uses_estimates=True),
    Heuristic("f2", "fitted score: sqrt(r) n + 25600 log10(s)", uses_estimates=True),
    Heuristic("f3", "fitted score: r n + 6860000 log10(s)", uses_estimates=True),
    Heuristic("f4", "fitted score: r sqrt(n) + 530000 log10(s)", uses_estimates=True),
    Heuristic("priority", "highest priority first"),
    Heuristic("edf", "earliest deadline first"),
    Heuristic("fair-share", "user with the least decayed usage first"),
    Heuristic("random", "a fresh random order at every decision point (seeded)"),
)
_register_all(
    "backfill",
    Heuristic("strict", "stop at the first job that does not fit"),
    Heuristic("greedy", "pass over jobs that do not fit"),
    Heuristic("easy", "start later jobs if the first that does not fit is not delayed", uses_estimates=True),
    Heuristic("easy-sjf", "like easy, trying the shortest jobs first", uses_estimates=True),
)
_register_all(
    "placement",
    Heuristic("consolidate", "fewest nodes of one pool; the rest of a gang on the fullest node that fits"),
    Heuristic("best-fit", "the same as consolidate"),
    Heuristic("first-fit", "fewest nodes; the rest of a gang on the lowest-numbered node that fits"),
    Heuristic("worst-fit", "fewest nodes; the rest of a gang on the emptiest node"),
    Heuristic("first-available", "the lowest-numbered node that fits, over all pools"),
    Heuristic("anywhere", "any split over nodes in order: the same as counting GPUs"),
    Heuristic("spread", "any split, emptiest nodes first"),
    Heuristic("random", "any split, nodes in random order (seeded)"),
)
