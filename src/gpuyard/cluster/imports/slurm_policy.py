"""The policy that a slurm.conf describes: priorities, their weights, and backfilling."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuyard.cluster.imports.findings import Findings
from gpuyard.cluster.imports.slurm_keys import FLAGS, SCHEDULER_OPTIONS
from gpuyard.cluster.imports.slurm_syntax import Statement
from gpuyard.cluster.imports.slurm_units import slurm_seconds, tres_amounts, whole, yes

NO_DECAY_S = 1e12
"""Half-life of usage that does not fade."""
MULTIFACTOR, BASIC = "priority/multifactor", "priority/basic"

WEIGHTS = {
    "priorityweightage": "age_weight",
    "priorityweightfairshare": "fair_share_weight",
    "priorityweightjobsize": "size_weight",
    "priorityweightpartition": "partition_weight",
    "priorityweightqos": "qos_weight",
}
"""Keys in lower case: the setting that each is."""
TRES = {"cpu": "cpu_weight", "mem": "memory_weight", "gres/gpu": "gpu_weight"}
"""Parts of PriorityWeightTRES: the setting that each is."""
BACKFILL: dict[str, tuple[str, Callable[[str], float]]] = {
    "bf_interval": ("bf_interval_s", lambda text: float(whole(text))),
    "bf_max_job_test": ("bf_max_job_test", whole),
    "max_job_bf": ("bf_max_job_test", whole),
    "bf_max_job_part": ("bf_max_job_part", whole),
    "bf_max_job_user": ("bf_max_job_user", whole),
    "bf_window": ("bf_window_s", lambda text: 60.0 * whole(text)),
    "bf_resolution": ("bf_resolution_s", lambda text: float(whole(text))),
}
"""Slurm's options: the setting that each is, in its unit. ``bf_window`` is in minutes."""

Stated = Mapping[str, tuple[str, Statement]]
"""The last value of each key of its own line, in lower case, and where it stands."""


def slurm_policy(stated: Stated, findings: Findings) -> tuple[str, dict[str, Any]]:
    """Name and settings of the policy.

    Settings that the file leaves out are those of Slurm, not of gpuyard.

    Raises:
        InputError: for a value that cannot be read, with its file and line.
    """
    settings: dict[str, Any] = {}
    kind = _value(stated, "prioritytype", "").lower()
    weighted = any(key in stated for key in (*WEIGHTS, "priorityweighttres"))
    if kind == MULTIFACTOR or (not kind and weighted):
        order, settings = "multifactor", _priority_settings(stated, findings)
    else:
        order = "fifo"
        if kind not in ("", BASIC):
            statement = stated["prioritytype"][1]
            findings.add(
                statement.where, f"PriorityType={kind}", "not-modelled", "jobs come in order of submit"
            )
    backfill = _backfill(stated, findings, settings)
    return f"{order}+{backfill}", settings


def _value(stated: Stated, key: str, otherwise: str) -> str:
    return stated[key][0] if key in stated else otherwise


def _read(stated: Stated, key: str, otherwise: Any, read: Callable[[str], Any]) -> Any:
    if key not in stated:
        return otherwise
    text, statement = stated[key]
    try:
        return read(text)
    except ValueError as error:
        raise statement.refuse(f"{key}: {error}") from None


def _priority_settings(stated: Stated, findings: Findings) -> dict[str, Any]:
    settings: dict[str, Any] = {field: float(_read(stated, key, 0, whole)) for key, field in WEIGHTS.items()}
    settings |= dict.fromkeys(TRES.values(), 0.0) | {"priority_weight": 0.0}
    settings |= _tres_weights(stated, findings)
    day_s = 86400.0
    settings["max_age_s"] = _read(stated, "prioritymaxage", 7 * day_s, slurm_seconds) or 7 * day_s
    settings["usage_half_life_s"] = (
        _read(stated, "prioritydecayhalflife", 7 * day_s, slurm_seconds) or NO_DECAY_S
    )
    settings["priority_calc_s"] = _read(stated, "prioritycalcperiod", 300.0, slurm_seconds) or 300.0
    settings["favor_small"] = _read(stated, "priorityfavorsmall", False, yes)
    settings["fair_share"] = "classic" if "no_fair_tree" in _flags(stated, findings) else "tree"
    return settings


def _tres_weights(stated: Stated, findings: Findings) -> dict[str, float]:
    text, statement = stated.get("priorityweighttres", ("", None))
    found = {}
    for name, amount in tres_amounts(text).items():
        assert statement is not None
        if name not in TRES:
            findings.add(
                statement.where,
                f"PriorityWeightTRES.{name}",
                "not-modelled",
                "only CPU, Mem and GRES/gpu count",
            )
            continue
        try:
            found[TRES[name]] = float(whole(amount))
        except ValueError as error:
            raise statement.refuse(f"PriorityWeightTRES: {name}: {error}") from None
    return found


def _flags(stated: Stated, findings: Findings) -> set[str]:
    text, statement = stated.get("priorityflags", ("", None))
    flags = {flag.strip().lower() for flag in text.split(",") if flag.strip()}
    for flag in sorted(flags):
        assert statement is not None
        if flag not in FLAGS:
            findings.add(statement.where, f"PriorityFlags.{flag}", "unknown")
        elif (remark := FLAGS[flag]) != "":
            status = "no-effect" if remark is None else "not-modelled"
            findings.add(statement.where, f"PriorityFlags.{flag}", status, remark or "")  # type: ignore[arg-type]
    return flags


def _backfill(stated: Stated, findings: Findings, settings: dict[str, Any]) -> str:
    kind = _value(stated, "schedulertype", "sched/backfill").lower()
    options = _scheduler_options(stated, findings)
    if kind == "sched/builtin":
        return "strict"
    if kind != "sched/backfill":
        findings.add(
            stated["schedulertype"][1].where,
            f"SchedulerType={kind}",
            "not-modelled",
            "taken as sched/backfill",
        )
    if options.get("bf_interval") == -1.0:
        findings.add(
            stated["schedulerparameters"][1].where,
            "SchedulerParameters.bf_interval=-1",
            "used",
            "there is no backfilling",
        )
        return "strict"
    usual = {"bf_interval": 30.0, "bf_max_job_test": 500, "bf_max_job_part": 0, "bf_max_job_user": 0}
    usual |= {"bf_window": 86400.0, "bf_resolution": 60.0}
    settings |= {BACKFILL[name][0]: value for name, value in {**usual, **options}.items()}
    return "slurm"


def _scheduler_options(stated: Stated, findings: Findings) -> dict[str, float]:
    """Those of backfilling, in the units of settings."""
    text, statement = stated.get("schedulerparameters", ("", None))
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (word.strip().lower() for word in part.partition("="))
        if not name:
            continue
        assert statement is not None
        if name in BACKFILL:
            known = "bf_max_job_test" if name == "max_job_bf" else name
            try:
                found[known] = -1.0 if (name, value) == ("bf_interval", "-1") else BACKFILL[name][1](value)
            except ValueError as error:
                raise statement.refuse(f"SchedulerParameters: {name}: {error}") from None
        else:
            status, remark = "unknown", ""
            if name in SCHEDULER_OPTIONS:
                status, remark = "not-modelled", "docs/contract/slurm.md, section 7"
            findings.add(statement.where, f"SchedulerParameters.{name}", status, remark)  # type: ignore[arg-type]
    return found
