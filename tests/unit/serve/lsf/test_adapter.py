"""Hosts, queues, plain text where nothing was found, and jobs that enter by the submit script."""

import os
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest

from fault.lsf_double import LsfDouble
from gpuyard.serve.adapter import AdapterError, Start
from gpuyard.serve.lsf.adapter import LsfAdapter
from gpuyard.serve.lsf.commands import Commands
from gpuyard.serve.lsf.hosts import gpus_in_use
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from support.paths import ROOT


@pytest.fixture
def lsf(tmp_path: Path) -> LsfDouble:
    return LsfDouble(tmp_path / "bin")


def adapter(lsf: LsfDouble, **settings: str) -> LsfAdapter:
    path = f"{lsf.place}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    return LsfAdapter(ServeSettings(**settings), Commands(20.0, {"PATH": path}))


def test_an_empty_cluster_says_so_in_plain_text(lsf: LsfDouble) -> None:
    state = adapter(lsf).observe()
    assert state.jobs == ()
    assert [(node.name, node.gpus, node.gpu_type, node.closed) for node in state.nodes] == [
        (f"gpu{number}.site", 4, "TeslaV100", "") for number in range(1, 5)
    ]
    assert state.partitions[0].nodes == ("gpu1.site", "gpu2.site", "gpu3.site", "gpu4.site")


class Said(Commands):
    """Prints one text, whatever it is asked."""

    def __init__(self, text: str, error: str = "") -> None:
        super().__init__()
        self._text, self._error = text, error

    def _run(self, command: tuple[str, ...]) -> bytes:
        if self._error:
            raise AdapterError(self._error, "exit")
        return self._text.encode()


@pytest.mark.parametrize("said", ["No job found\n", "No unfinished job found\n", "No matching job found"])
def test_nothing_found_is_no_records(said: str) -> None:
    assert Said(said).records("bjobs") == []
    assert Said("", f"bjobs ended with 255: {said}").records("bjobs") == []


@pytest.mark.parametrize(
    "said",
    [
        '{"COMMAND":"bjobs","JOBS":2,"RECORDS":[{"JOBID":"1","JOB_NAME":"No job found"}]}',
        '{"COMMAND":"bjobs","JOBS":0}',
        '{"RECORDS":["1"]}',
        "",
        "something else",
    ],
)
def test_anything_else_is_an_error(said: str) -> None:
    with pytest.raises(AdapterError):
        Said(said).records("bjobs")


def test_a_job_may_be_called_like_the_message() -> None:
    said = '{"COMMAND":"bjobs","JOBS":1,"RECORDS":[{"JOBID":"1","JOB_NAME":"No job found"}]}'
    assert Said(said).records("bjobs") == [{"JOBID": "1", "JOB_NAME": "No job found"}]


def test_gpus_in_use_are_those_with_jobs() -> None:
    table = (ROOT / "tests" / "data" / "lsf-hosts" / "bhosts-gpu.txt").read_text(encoding="utf-8")
    assert gpus_in_use(table) == {"host01": 0}
    busy = "HOST_NAME ID MODEL NJOBS\nh1 0 V100 1\n   1 V100 0\n   2 V100 2\nh2 - - -\n"
    assert gpus_in_use(busy) == {"h1": 2}
    with pytest.raises(AdapterError, match="NJOBS"):
        gpus_in_use("HOST_NAME ID MODEL\nh1 0 V100\n")


def test_brun_starts_at_once_past_lsfs_limits(lsf: LsfDouble) -> None:
    job = lsf.submit(gpus=1, state="PSUSP", description="mine; gpuyard:held")
    live = adapter(lsf, lsf_start="brun")
    live.observe()
    (outcome,) = live.apply([Start(str(job), ("gpu3.site",), "1-0", (), (1,))])
    assert outcome.ok, outcome.error
    assert (lsf.jobs()[job]["state"], lsf.jobs()[job]["on_hosts"]) == ("RUN", "gpu3.site")
    assert lsf.jobs()[job]["description"] == "mine; gpuyard:1-0@gpu3.site"


def test_a_gang_gets_its_hosts(lsf: LsfDouble) -> None:
    job = lsf.submit(gpus=2, slots=4, state="PSUSP", description="gpuyard:held", more='{"ptile": 2}')
    live = adapter(lsf)
    seen = live.observe().by_id[str(job)]
    assert (seen.gpus, seen.nodes, seen.cpus) == (4, 2, 4)
    live.apply([Start(str(job), ("gpu2.site", "gpu4.site"), "1-0", (), (2, 2))])
    lsf.tick()
    runs = live.observe().by_id[str(job)]
    assert [(share.node, share.gpus, share.cpus) for share in runs.shares] == [
        ("gpu2.site", 2, 2),
        ("gpu4.site", 2, 2),
    ]


# --- the submit script


@pytest.fixture
def site(lsf: LsfDouble, tmp_path: Path) -> Signs:
    """A site whose esub knows what its LSF calls the description."""
    signs = Signs(tmp_path / "state")
    signs.make()
    script = (files("gpuyard.serve.lsf") / "files" / "esub.gpuyard").read_text(encoding="utf-8")
    script = script.replace("state_dir=/var/lib/gpuyard", f"state_dir={signs.directory}")
    script = script.replace("\ndescription_variable=\n", "\ndescription_variable=LSB_SUB_JOB_DESCRIPTION\n")
    installed = lsf.place / "esub.gpuyard"
    installed.write_text(script, encoding="utf-8")
    installed.chmod(0o755)
    return signs


def submitted(lsf: LsfDouble, *words: str) -> tuple[str, str]:
    """State and description of a job after bsub."""
    done = subprocess.run(
        [lsf.place / "bsub", *words, "sleep", "60"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    last = list(lsf.jobs().values())[-1]
    return last["state"], last["description"]


def test_the_submit_script_holds_and_marks_while_the_agent_lives(lsf: LsfDouble, site: Signs) -> None:
    site.beat()
    assert submitted(lsf) == ("PSUSP", "gpuyard:held")
    assert submitted(lsf, "-Jd", "my words") == ("PSUSP", "my words; gpuyard:held")
    assert submitted(lsf, "-J", "$(touch x)") == ("PSUSP", "gpuyard:held")
    assert {job.held for job in adapter(lsf).observe().jobs} == {"agent"}


def test_the_submit_script_holds_nothing_without_a_living_agent(lsf: LsfDouble, site: Signs) -> None:
    assert submitted(lsf) == ("PEND", "")
    site.beat(time.time() - 31)
    assert submitted(lsf) == ("PEND", "")
    site.beat(time.time() + 3600)
    assert submitted(lsf) == ("PEND", "")
    site.heartbeat.write_text("garbage\n")
    assert submitted(lsf) == ("PEND", "")
    site.beat()
    site.halt("test")
    assert submitted(lsf) == ("PEND", "")


def test_a_users_own_hold_stays_the_users(lsf: LsfDouble, site: Signs) -> None:
    site.beat()
    assert submitted(lsf, "-H") == ("PSUSP", "")
    assert adapter(lsf).observe().jobs[0].held == "other"
    assert submitted(lsf, "-Jd", "costs 5$ `id`") == ("PEND", "costs 5$ `id`")


def test_the_shipped_submit_script_holds_nothing_until_it_is_filled_in(lsf: LsfDouble, site: Signs) -> None:
    site.beat()
    text = (lsf.place / "esub.gpuyard").read_text()
    (lsf.place / "esub.gpuyard").write_text(
        text.replace("description_variable=LSB_SUB_JOB_DESCRIPTION", "description_variable=")
    )
    assert submitted(lsf) == ("PEND", "")
