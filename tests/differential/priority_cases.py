"""Random environments in which `multifactor` is the base policy, the expert, or both.

Cases of `env_cases`, with other weights and shares, and with calculations so often that they matter.
"""

import random
from dataclasses import replace

from differential.env_cases import EnvCase, env_case, without_early_end

WEIGHTS = (0.0, 0.0, 1.0, 100.0, 1000.0, 0.1)
PERIODS = (0.5, 1.0, 1.0, 3.0, 10.0, 100.0)
WEIGHED = ("age", "fair_share", "size", "gpu", "cpu", "memory", "priority")


def priority_case(seed: int) -> EnvCase:
    rng = random.Random(f"priorities {seed}")
    case = env_case(seed)
    whose = rng.choice(("base", "expert", "both"))
    if whose != "expert":
        case = replace(case, base_policy=as_multifactor(case.base_policy))
    if whose != "base":
        case = replace(case, expert=as_multifactor(case.expert))
    settings = replace(case.settings, priorities=random_priorities(rng, case), window=rng.choice((2, 5, 64)))
    return without_early_end(replace(case, settings=settings))


def as_multifactor(policy: str) -> str:
    """The policy with another order."""
    return "multifactor" + policy[policy.index("+") :]


def random_priorities(rng: random.Random, case: EnvCase) -> dict[str, object]:
    """Settings of the simulator that `multifactor` goes by, with times in the scale of the case."""
    unit_s = max(case.settings.tick_s, 2e-6)
    weights: dict[str, object] = {f"{name}_weight": rng.choice(WEIGHTS) for name in WEIGHED}
    return weights | {
        "fair_share_weight": rng.choice((1.0, 1000.0, 1000.0)),
        "fair_share": rng.choice(("tree", "tree", "classic")),
        "priority_calc_s": round(rng.choice(PERIODS) * unit_s, 6),
        "max_age_s": rng.choice((1.0, 10.0, 1000.0)) * unit_s,
        "favor_small": rng.random() < 0.3,
        "user_shares": random_shares(rng, case.jobs["user"]),
        "group_shares": random_shares(rng, case.jobs["group"]),
    }


def random_shares(rng: random.Random, names: list[object]) -> dict[object, float]:
    return {name: rng.choice((0.5, 2.0, 7.0)) for name in sorted(map(str, set(names))) if rng.random() < 0.4}
