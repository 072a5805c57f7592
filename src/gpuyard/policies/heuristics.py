"""The heuristics that the native core computes, by name. Their formulas are in docs/contract/simulator.md."""

from dataclasses import dataclass

from gpuyard import _core
from gpuyard.policies.formulas import FORMULAS
from gpuyard.registry import origin, register, registered


@dataclass(frozen=True)
class Heuristic:
    """A rule of the native core.

    Attributes:
        name: As in a policy's name.
        summary: One line for people.
        uses_estimates: Whether it needs run time estimates to do anything useful.
        preempts: Whether it may stop running jobs.
        source: Where it comes from.
        form: How its name is written, if a number belongs to it.
        example: Such a name.
    """

    name: str
    summary: str
    uses_estimates: bool = False
    preempts: bool = False
    source: str = "folklore"
    form: str = ""
    example: str = ""

    @property
    def usable_name(self) -> str:
        """A name that a policy can have: with a number, if one belongs to it."""
        return self.example or self.name


_TRAITS: dict[str, dict[str, bool]] = {traits.pop("name"): traits for traits in _core.orders()}
"""The core's table of what is true of each order (core/policy/order.hpp), by name."""


class Order(Heuristic):
    """An order of the native core."""

    @property
    def formula(self) -> str:
        """Its score; jobs with the smallest come first. ``formulas`` says what the letters are."""
        return FORMULAS[self.name]

    @property
    def needs_watts(self) -> bool:
        """Whether it goes by what GPUs draw."""
        return _TRAITS[self.name]["needs_watts"]

    @property
    def predicts(self) -> bool:
        """Whether it goes by run times predicted from finished jobs."""
        return _TRAITS[self.name]["predicts"]

    @property
    def sees_names(self) -> bool:
        """Whether users, groups or finished jobs make a difference to it."""
        return _TRAITS[self.name]["sees_names"]

    @property
    def fixed_while_waiting(self) -> bool:
        """Whether the score of a waiting job stays the same."""
        return _TRAITS[self.name]["fixed_while_waiting"]

    @property
    def changes_by_period(self) -> bool:
        """Whether scores change at multiples of a time, all of them together."""
        return _TRAITS[self.name]["changes_by_period"]

    @property
    def runs_lean(self) -> bool:
        """Whether the lean simulator keeps all that it goes by."""
        return _TRAITS[self.name]["runs_lean"]


def _order(name: str, summary: str, source: str = "folklore", form: str = "", example: str = "") -> Order:
    traits = _TRAITS[name]
    return Order(name, summary, traits["uses_estimates"], traits["preempts"], source, form, example)


def described(kind: str) -> list[Heuristic]:
    """All rules of a kind for people; of a function the first line of its docstring."""
    return [
        rule if isinstance(rule, Heuristic) else Heuristic(name, _first_line(rule), source=origin(kind, name))
        for name, rule in registered(kind).items()
    ]


def _first_line(rule: object) -> str:
    return (rule.__doc__ or "").strip().partition("\n")[0]


def _register_all(kind: str, *heuristics: Heuristic) -> None:
    for heuristic in heuristics:
        register(kind, heuristic.name)(heuristic)


_SMITH = "Smith 1956"
_TANG = "Tang et al., Cluster 2009"
_CARASTAN = "Carastan-Santos & de Camargo, SC 2017"
_TIRESIAS = "Gu et al., NSDI 2019 (Tiresias)"
_SLURM = "Slurm multifactor plugin"
_OPTIMAL = "Schrage 1968"

_register_all(
    "order",
    _order("fifo", "first come, first served"),
    _order("lifo", "last come, first served"),
    _order("sjf", "shortest estimated run time first", source=_SMITH),
    _order("ljf", "longest estimated run time first"),
    _order("smallest", "fewest GPUs first"),
    _order("largest", "most GPUs first"),
    _order("saf", "smallest area (estimate x GPUs) first"),
    _order("laf", "largest area (estimate x GPUs) first"),
    _order(
        "wspt",
        "Smith's index for bounded slowdown: estimate x max(estimate, 10 s) x GPUs",
        source=_SMITH,
    ),
    _order(
        "power",
        "estimate to the power of A, x GPUs: between smallest (A near 0), saf (1) and wspt (2)",
        form="power:A",
        example="power:0.5",
    ),
    _order("wfp3", "longest wait against its estimate, and large, first", source=_TANG),
    _order("unicep", "longest wait against its estimate, and small, first", source=_TANG),
    _order("f1", "fitted score: log10(r) n + 870 log10(s)", source=_CARASTAN),
    _order("f2", "fitted score: sqrt(r) n + 25600 log10(s)", source=_CARASTAN),
    _order("f3", "fitted score: r n + 6860000 log10(s)", source=_CARASTAN),
    _order("f4", "fitted score: r sqrt(n) + 530000 log10(s)", source=_CARASTAN),
    _order("priority", "highest priority first"),
    _order("edf", "earliest deadline first", source="Liu & Layland 1973"),
    _order("fair-share", "user with the least decayed usage first", source="Kay & Lauder 1988"),
    _order("random", "a fresh random order at every decision point (seeded)"),
    _order("power-aware", "least energy to finish on its best pool first"),
    _order(
        "qssf",
        "smallest service first: GPUs x run time predicted from finished jobs",
        source="Hu et al., SC 2021 (Helios)",
    ),
    _order("group-fair-share", "group with the least decayed usage first", source="Kay & Lauder 1988"),
    _order("drf", "user with the least dominant share first", source="Ghodsi et al., NSDI 2011"),
    _order("multifactor", "Slurm's priority: age, fair share, size, partition, QOS and more", source=_SLURM),
    _order("srtf", "shortest remaining time first", source=_OPTIMAL),
    _order("ssf", "smallest remaining service (time x GPUs) first", source=_TIRESIAS),
    _order("las", "least attained service (time) first", source="Rai et al., SIGMETRICS 2003"),
    _order("las-2d", "least attained service (time x GPUs) first", source=_TIRESIAS),
    _order(
        "tiresias",
        "las-2d in a few levels, first come first served inside, promotion after starvation",
        source=_TIRESIAS,
    ),
    _order(
        "gittins",
        "likeliest to finish for the service it takes, from the GPU time of finished jobs",
        source="Gittins 1979; " + _TIRESIAS,
    ),
)
_register_all(
    "backfill",
    Heuristic("strict", "stop at the first job that does not fit"),
    Heuristic("greedy", "pass over jobs that do not fit"),
    Heuristic(
        "easy",
        "start later jobs if the first that does not fit is not delayed",
        True,
        source="Lifka, JSSPP 1995",
    ),
    Heuristic(
        "easy-sjf", "like easy, trying the shortest jobs first", True, source="Tsafrir et al., TPDS 2007"
    ),
    Heuristic(
        "conservative",
        "every waiting job holds a reservation that later ones must not delay",
        True,
        source="Mu'alem & Feitelson, TPDS 2001",
    ),
    Heuristic(
        "slurm",
        "as Slurm: in order per partition, and now and then a plan that reserves whole nodes",
        True,
        source="Slurm sched/backfill plugin",
    ),
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
    Heuristic("power-aware", "the pool that takes least energy, on nodes that are awake"),
    Heuristic(
        "tetris",
        "fewest nodes; the rest on the node whose free resources match the job's best",
        source="Grandl et al., SIGCOMM 2014",
    ),
    Heuristic(
        "fgd",
        "fewest nodes; the rest where it fragments GPUs least for jobs like those seen so far",
        source="Weng et al., ATC 2023",
    ),
    Heuristic("tier", "fewest nodes or one more: fewest fragmented nodes, least free on them, then balance"),
    Heuristic("tier-balance", "fewest nodes or one more: evenest load, then fewest fragmented nodes"),
    Heuristic("tier-lex", "fewest nodes or one more: the lowest-numbered nodes that can hold the gang"),
    Heuristic(
        "tier-cost", "fewest nodes or one more by cost: 10 a fragmented node, 1 a node, spread of free GPUs"
    ),
    Heuristic("milp", "the first four jobs placed together by an integer programme"),
)
