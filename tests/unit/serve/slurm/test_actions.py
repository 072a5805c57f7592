"""Which commands are run for an action, in which order, and what happens when one fails."""

from collections.abc import Callable, Sequence

from gpuyard.serve.adapter import AdapterError, GiveBack, Reorder, Start
from gpuyard.serve.slurm.actions import Actions
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.slurm.jobs import Known
from gpuyard.serve.slurm.rest import RestFirst

Fails = Callable[[Sequence[str]], bool]


class Recorder(Commands):
    """Remembers what it was told to run."""

    def __init__(self, fails: Fails = lambda _: False, words: str = "scontrol ended with 1: no") -> None:
        self.calls: list[tuple[str, ...]] = []
        self._fails, self._words = fails, words

    def text(self, *command: str) -> str:
        self.calls.append(command[1:])
        if self._fails(command):
            raise AdapterError(self._words, "exit")
        return ""


HELD = Known("7", ("7",), "site; gpuyard:held", held="agent")
PINNED = Known("8", ("8",), "gpuyard:1-1@gn1", required="gn1")
ORDERED = Known("9", ("9",), "gpuyard:1-2")
ARRAY = Known("5_[1-3]", ("5_1", "5_2", "5_3"), "gpuyard:held", held="agent")
KNOWN = {"7": HELD, "8": PINNED, "9": ORDERED, **dict.fromkeys(ARRAY.members, ARRAY)}


def actions(commands: Recorder) -> Actions:
    return Actions(commands, RestFirst(None))


def test_a_start_prescribes_nodes_with_the_decision_and_then_releases() -> None:
    recorder = Recorder()
    outcome = actions(recorder).apply([Start("7", ("gn1", "gn2"), "3-1")], KNOWN)[0]
    assert outcome.ok
    assert recorder.calls == [
        ("update", "JobId=7", "ReqNodeList=gn[1-2]", "AdminComment=site; gpuyard:3-1@gn[1-2]"),
        ("release", "7"),
    ]


def test_jobs_that_start_together_are_released_at_once() -> None:
    recorder = Recorder()
    known = {str(n): Known(str(n), (str(n),), "gpuyard:held", held="agent") for n in (1, 2, 3)}
    outcomes = actions(recorder).apply([Start(job, ("gn1",), f"3-{job}") for job in known], known)
    assert all(one.ok for one in outcomes)
    assert [call[0] for call in recorder.calls] == ["update", "update", "update", "release"]
    assert recorder.calls[-1] == ("release", "1,2,3")
    picky = Recorder(lambda command: command[1] == "release" and "2" in command[2].split(","))
    outcomes = actions(picky).apply([Start(job, ("gn1",), f"3-{job}") for job in known], known)
    assert [one.ok for one in outcomes] == [True, False, True]
    assert picky.calls[-1] == ("update", "JobId=2", "ReqNodeList=", "AdminComment=gpuyard:held")


def test_only_jobs_that_a_failure_names_are_tried_again() -> None:
    known = {str(n): Known(str(n), (str(n),), "gpuyard:held", held="agent") for n in (11, 12, 13)}
    words = "scontrol ended with 1: Invalid job id specified for job 12"
    recorder = Recorder(lambda command: command[1] == "release" and "12" in command[2].split(","), words)
    outcomes = actions(recorder).apply([Start(job, ("gn1",), f"3-{job}") for job in known], known)
    assert [one.code for one in outcomes] == ["", "missing", ""]
    assert [call for call in recorder.calls if call[0] == "release"] == [
        ("release", "11,12,13"),
        ("release", "12"),
    ]


def test_a_release_that_fails_takes_the_nodes_back() -> None:
    recorder = Recorder(lambda command: "release" in command)
    outcome = actions(recorder).apply([Start("7", ("gn1",), "3-1")], KNOWN)[0]
    assert (outcome.ok, outcome.code) == (False, "refused")
    assert recorder.calls[-1] == ("update", "JobId=7", "ReqNodeList=", "AdminComment=site; gpuyard:held")


def test_a_stopped_job_is_held_with_a_mark_in_one_step() -> None:
    recorder = Recorder()
    assert actions(recorder).apply([Start("7", ("gn1",), "3-1", stop=("8",))], KNOWN)[0].ok
    assert recorder.calls[:2] == [
        ("requeue", "8"),
        ("update", "JobId=8", "StartTime=now", "Priority=0", "AdminComment=gpuyard:held", "ReqNodeList="),
    ]


def test_the_delay_after_a_requeue_ends_with_a_start_or_a_return() -> None:
    delayed = {"7": Known("7", ("7",), "gpuyard:held", held="agent", delayed=True)}
    recorder = Recorder()
    actions(recorder).apply([Start("7", ("gn1",), "3-1")], delayed)
    assert recorder.calls[0][-1] == "StartTime=now"
    recorder = Recorder()
    actions(recorder).apply([GiveBack("7", "halt")], delayed)
    assert recorder.calls[0] == ("update", "JobId=7", "StartTime=now")


def test_nodes_that_a_user_named_are_never_replaced() -> None:
    recorder = Recorder()
    known = {"7": Known("7", ("7",), "gpuyard:held", required="gn9", held="agent")}
    assert actions(recorder).apply([Start("7", ("gn1",), "3-1")], known)[0].code == "refused"
    assert recorder.calls == []


def test_a_job_that_is_gone_is_no_alarm_and_does_not_stop_the_others() -> None:
    recorder = Recorder(
        lambda command: "JobId=7" in command, "scontrol ended with 1: Invalid job id specified"
    )
    outcomes = actions(recorder).apply(
        [Start("1", ("gn1",), "3-1"), Start("7", ("gn1",), "3-2"), Start("5_1", ("gn2",), "3-3")], KNOWN
    )
    assert [one.code for one in outcomes] == ["missing", "missing", ""]


def test_tasks_that_share_a_record_get_one_priority_in_one_command() -> None:
    free = Known("5_[1-3]", ("5_1", "5_2", "5_3"), "")
    recorder = Recorder()
    outcomes = actions(recorder).apply(
        [Reorder(f"5_{task}", 1000 + task, f"2-{task}") for task in (1, 2, 3)],
        dict.fromkeys(free.members, free),
    )
    assert all(one.ok for one in outcomes)
    assert recorder.calls == [("update", "JobId=5_[1-3]", "Priority=1003", "AdminComment=gpuyard:2-1")]


def test_a_held_job_is_not_reordered_because_its_mark_would_be_lost() -> None:
    recorder = Recorder()
    assert actions(recorder).apply([Reorder("7", 5000, "2-1")], KNOWN)[0].code == "refused"
    assert recorder.calls == []


def test_giving_back_cleans_the_comment_last() -> None:
    recorder = Recorder()
    assert actions(recorder).apply([GiveBack("8", "late")], KNOWN)[0].ok
    assert recorder.calls == [
        ("update", "JobId=8", "ReqNodeList="),
        ("release", "8"),
        ("update", "JobId=8", "AdminComment="),
    ]


def test_somebody_elses_hold_stays() -> None:
    recorder = Recorder()
    known = {"9": Known("9", ("9",), "x; gpuyard:1-2", held="other")}
    assert actions(recorder).apply([GiveBack("9", "halt")], known)[0].ok
    assert recorder.calls == [("update", "JobId=9", "AdminComment=x")]


def test_a_job_without_a_mark_is_not_touched() -> None:
    recorder = Recorder()
    known = {"9": Known("9", ("9",), "words")}
    assert actions(recorder).apply([GiveBack("9", "halt")], known)[0].code == "refused"
    assert recorder.calls == []


def test_many_are_given_back_at_once_and_one_that_fails_alone() -> None:
    marked = [Known(str(n), (str(n),), "gpuyard:held", held="agent") for n in range(100, 220)]
    recorder = Recorder(lambda command: command[1] == "release" and "150" in command[2].split(","))
    outcomes = actions(recorder).give_back_all(marked)
    assert [one.action.job for one in outcomes if not one.ok] == ["150"]
    cleaned = [job for call in recorder.calls if call[0] == "update" for job in call[1][6:].split(",")]
    assert "150" not in cleaned  # it keeps the mark, so that it is found again
    assert len(cleaned) == 119
    assert len(recorder.calls) < 60


def test_a_whole_array_is_given_back_by_its_record_and_a_part_by_its_tasks() -> None:
    whole, part = Recorder(), Recorder()
    actions(whole).apply([GiveBack(task, "x") for task in ARRAY.members], KNOWN)
    assert whole.calls[0] == ("release", "5_[1-3]")
    assert len(whole.calls) == 2
    actions(part).apply([GiveBack("5_2", "x")], KNOWN)
    assert part.calls[0] == ("release", "5_2")


def test_names_that_are_no_jobs_never_become_arguments() -> None:
    recorder = Recorder()
    known = {"--help": Known("--help", ("--help",), "gpuyard:held", held="agent")}
    assert not actions(recorder).apply([GiveBack("--help", "x")], known)[0].ok
    assert recorder.calls == []
