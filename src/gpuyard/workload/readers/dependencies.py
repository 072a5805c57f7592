"""Which jobs a job waits for, as schedulers write it: ids joined by ``|``, for the column ``after``.

Only jobs that have to *end* are kept. How they have to end does not matter: in the log the job did run.
"""

import re
from collections.abc import Iterable

from gpuyard.workload.node_lists import SEPARATOR

_ENDING = ("afterok", "afterany", "afternotok", "aftercorr", "afterburstbuffer")
"""Slurm's and PBS's kinds of dependency that are over when the other job is."""
_SLURM_OPTION = re.compile(r"(?:^|\s)(?:--dependency(?:=|\s+)|-d\s*=?)[\"']?([a-z]+:[^\s\"']+)")
_LSF_TERM = re.compile(
    r"(?:(?:done|ended|exit)\s*\(\s*[\"']?(\d{1,10}(?:\[\d{1,9}\])?)[\"']?\s*(?:,[^()]*)?\)|(\d{1,10}))"
)

Found = tuple[str | None, bool]
"""Ids, None if there are none; and whether something was left out."""


def joined(ids: Iterable[str]) -> str | None:
    """Each once, in their order; None for none."""
    return SEPARATOR.join(dict.fromkeys(ids)) or None


def slurm_dependency(text: str) -> Found:
    """``afterok:123:124_5(unfulfilled),afterany:9+30``; ``?`` means that one of several is enough."""
    ids: list[str] = []
    left_out = "?" in text
    for clause in [] if left_out else text.split(","):
        kind, _, jobs = clause.strip().partition(":")
        jobs = re.sub(r"\([^)]*\)", "", jobs)
        if kind.lower() in _ENDING and jobs:
            ids += [re.split(r"[+]", job)[0].removesuffix("_*") for job in jobs.split(":") if job]
        elif kind:
            left_out = True
    return joined(ids), left_out


def submit_line_dependency(text: str) -> Found:
    """The dependency among the options of a command such as ``sbatch -d afterok:17 job.sh``."""
    found = _SLURM_OPTION.search(text)
    return slurm_dependency(found[1]) if found else (None, False)


def pbs_dependency(text: str) -> Found:
    """``afterok:501.pbs1@pbs1:502.pbs1,beforeany:9.pbs1``, without the names of servers."""
    ids: list[str] = []
    left_out = False
    for clause in text.split(","):
        kind, _, jobs = clause.strip().partition(":")
        if kind.lower() in _ENDING:
            ids += [job.split(".", 1)[0].split("@", 1)[0] for job in jobs.split(":") if job]
        elif kind:
            left_out = True
    return joined(ids), left_out


def _bare(term: str) -> str:
    """Without parentheses around terms, which mean nothing where all of them have to hold."""
    bare = term.strip().lstrip("( ")
    while bare.count(")") > bare.count("("):
        bare = bare[:-1].rstrip()
    return bare


def lsf_dependency(text: str) -> Found:
    """``done(123) && ended(124[2])`` or ``123``; alternatives, names and starts are left out."""
    ids: list[str] = []
    left_out = "||" in text or "!" in text
    for term in [] if left_out or not text.strip() else text.split("&&"):
        found = _LSF_TERM.fullmatch(_bare(term))
        if found:
            ids.append(found[1] or found[2])
        else:
            left_out = True
    return joined(ids), left_out


OTHER_DEPENDENCIES = (
    "dependencies on something else than the end of jobs by their ids (starts, alternatives, names)"
)
LEFT_OUT = "depends on something else than the end of jobs by their ids: that is left out"
"""What is said of one row."""
