"""QOSes and shares from Slurm's accounts: ``sacctmgr -P show qos`` and ``show assoc``, ``sshare -P``."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuyard.cluster.imports.findings import Findings
from gpuyard.cluster.imports.slurm_units import slurm_seconds, tres_amounts, whole
from gpuyard.errors import InputError

Row = Mapping[str, str]

_GPU = "gres/gpu"
_LIMITS = {
    "maxtres": "max_gpus_per_job",
    "maxtrespu": "max_gpus_per_user",
    "maxtresperuser": "max_gpus_per_user",
    "maxtrespa": "max_gpus_per_group",
    "maxtresperaccount": "max_gpus_per_group",
    "maxtresperjob": "max_gpus_per_job",
    "grptres": "max_gpus",
}
"""Columns that limit GPUs among other things."""
_NUMBERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "priority": ("priority", whole),
    "maxwall": ("max_time_s", slurm_seconds),
    "maxwalldurationperjob": ("max_time_s", slurm_seconds),
    "maxjobspu": ("max_jobs_per_user", whole),
    "maxjobsperuser": ("max_jobs_per_user", whole),
}
_NO_EFFECT = (
    "description",
    "id",
    "gracetime",
    "usagethres",
    "maxsubmitpu",
    "maxsubmitpa",
    "grpsubmit",
)
_USUAL = {"preemptmode": "cluster", "usagefactor": "1.000000", "gracetime": "00:00:00"}
OF_PARTITIONS = ("max_time_s", "max_gpus_per_job", "max_gpus_per_user", "max_jobs_per_user")
"""Limits of a QOS that a partition may have, if it is the partition's own."""


def table_of(text: str) -> list[dict[str, str]]:
    """Rows of a table with ``|`` between columns, by heading in lower case without blanks."""
    lines = text.splitlines()
    headings = [word.strip().lower().replace(" ", "") for word in lines[0].split("|")]
    return [dict(zip(headings, line.split("|"), strict=False)) for line in lines[1:] if line.strip()]


def is_qos_table(text: str) -> bool:
    """Whether a text is ``sacctmgr -P show qos`` (also ``-p``, or with ``format=``)."""
    headings = set(table_heading(text))
    return "name" in headings and bool(headings & {*_LIMITS, *_NUMBERS})


def is_share_table(text: str) -> bool:
    """Whether a text is ``sacctmgr -P show assoc`` or ``sshare -P -a``."""
    headings = set(table_heading(text))
    return {"account", "user"} <= headings and bool(headings & {"share", "fairshare", "rawshares"})


def table_heading(text: str) -> list[str]:
    """Headings of a table, in lower case without blanks; of any other text, one word or none."""
    first = text.split("\n", 1)[0]
    return [word.strip().lower().replace(" ", "") for word in first.split("|")] if "|" in first else []


def read_qos(text: str, source: str, findings: Findings) -> list[dict[str, Any]]:
    """Fields of ``gpuyard.cluster.model.Qos``, one for each row.

    Raises:
        InputError: for a value that cannot be read, with file and line.
    """
    found = []
    for number, row in enumerate(table_of(text), start=2):
        qos: dict[str, Any] = {"name": row["name"].strip()}
        where = f"{source}:{number}"
        for column, value in row.items():
            if column in ("", "name") or not value.strip():
                continue
            try:
                _add_limit(qos, column, value.strip(), where, findings)
            except ValueError as error:
                raise InputError(f"{source}, line {number}: QOS {qos['name']}: {column}: {error}") from None
        if qos["name"]:
            found.append(qos)
    return found


def _add_limit(qos: dict[str, Any], column: str, value: str, where: str, findings: Findings) -> None:
    name = f"QOS {qos['name']}.{column}"
    if column in _NUMBERS:
        field, read = _NUMBERS[column]
        amount = read(value)
        qos |= {} if amount is None else {field: amount}
        findings.add(where, name, "used")
    elif column in _LIMITS:
        for resource, text in tres_amounts(value).items():
            if resource == _GPU:
                qos[_LIMITS[column]] = whole(text)
                findings.add(where, name, "used")
            else:
                findings.add(where, f"{name}.{resource}", "not-modelled", "only GPUs (gres/gpu) are limited")
    elif column in _NO_EFFECT or value == _USUAL.get(column):
        findings.add(where, f"QOS.{column}", "no-effect")
    else:
        findings.add(where, name, "not-modelled", "docs/contract/slurm.md, section 2")


def with_partition_limits(fields: Mapping[str, Any], qos: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of a partition with the limits of its own QOS, the stricter of both."""
    found = dict(fields)
    for name in OF_PARTITIONS:
        value = None if qos is None else qos.get(name)
        if value is not None:
            found[name] = min(value, found.get(name, value))
    return found


def read_shares(text: str, source: str, findings: Findings) -> dict[str, dict[str, float]]:
    """``user_shares`` and ``group_shares`` of a policy: accounts are groups. Shares of 1 are left out.

    Raises:
        InputError: for a share that cannot be read, with file and line.
    """
    users: dict[str, dict[float, int]] = {}
    groups: dict[str, float] = {}
    for number, row in enumerate(table_of(text), start=2):
        account, user = row.get("account", ""), row.get("user", "").strip()
        share = next((row[key].strip() for key in ("share", "rawshares", "fairshare") if row.get(key)), "")
        where, name = f"{source}:{number}", f"{account.strip()}/{user}".strip("/")
        if not share or account.strip() in ("", "root"):
            continue
        if share.lower() == "parent":
            findings.add(where, f"share of {name}", "not-modelled", "the share of its parent; it counts as 1")
            continue
        try:
            value = float(whole(share))
        except ValueError as error:
            raise InputError(f"{source}, line {number}: share of {name}: {error}") from None
        if user:
            users.setdefault(user, {}).setdefault(value, number)
        else:
            groups[account.strip()] = value
            _note_depth(account, row, where, findings)
    return {
        "user_shares": _one_each(users, source, findings),
        "group_shares": {name: value for name, value in groups.items() if value not in (0.0, 1.0)},
    }


def _note_depth(account: str, row: Row, where: str, findings: Findings) -> None:
    """Depth is shown by blanks in sshare, and by a column in sacctmgr."""
    depth, parent = (
        len(account) - len(account.lstrip()),
        row.get("parname", row.get("parentname", "")).strip(),
    )
    if depth > 1 or parent not in ("", "root"):
        name = account.strip()
        findings.add(where, f"account {name}", "not-modelled", "accounts within accounts count as one level")


def _one_each(users: Mapping[str, Mapping[float, int]], source: str, findings: Findings) -> dict[str, float]:
    """The share of every user who has only one, wherever the user is."""
    found = {}
    for user, shares in users.items():
        if len(shares) > 1:
            lines = ", ".join(f"{value:g} in line {number}" for value, number in shares.items())
            where = f"{source}:{min(shares.values())}"
            findings.add(
                where, f"share of {user}", "not-modelled", f"differs by account ({lines}); it counts as 1"
            )
        elif (share := next(iter(shares))) not in (0.0, 1.0):
            found[user] = share
    return found
