"""Section 7 of docs/contract/simulator.md: what happens at one instant, and when the next one is."""

from collections.abc import Iterator
from dataclasses import replace

from reference.simulator import slurm
from reference.simulator.dependencies import has_to_wait_for_none
from reference.simulator.inputs import Outcome, Request, to_us
from reference.simulator.state import MOST_FAILURES, Promise, Running, State


def times_of_events_us(state: State) -> Iterator[int]:
    for run in state.running:
        if not run.begun:
            yield run.begin_us
        elif run.stopped_us is not None:
            yield run.effect_us
        else:
            yield run.end_us
    for promise in state.promises.values():
        yield promise.begin_us
    for node in state.node_states:
        if node.changes_us is not None:
            yield node.changes_us
    for request in state.arriving:
        yield request.submit_us
    backfill_us = slurm.next_backfill_us(state)
    if backfill_us is not None:
        yield backfill_us
    decides_from_us = state.beginning.decides_from_us
    if state.preempts and state.queued:
        tick_us = to_us(state.settings.reschedule_s)
        yield (max(state.now_us, decides_from_us - 1) // tick_us + 1) * tick_us
    if state.now_us < decides_from_us:
        yield decides_from_us
        for _, start_us, _ in state.beginning.starts:
            if state.instant < 0 or start_us > state.now_us:
                yield start_us


def happen(state: State) -> None:
    """Everything of this instant up to the decision point, in the order of section 7."""
    now_us = state.now_us
    runs = sorted(state.running, key=lambda run: run.request.id)
    for run in runs:
        if run.begun and run.stopped_us is None and run.end_us == now_us:
            finish(state, run)
    changing = [id for id, node in enumerate(state.node_states) if node.changes_us == now_us]
    down = {id: state.node_states[id].is_down for id in changing}
    for node in changing:
        if down[node]:
            repair(state, node)
    for node in changing:
        if not down[node]:
            fail(state, node)
    for run in runs:
        if run in state.running and run.stopped_us is not None and run.effect_us == now_us:
            end_stop(state, run)
    begin(state)
    arrive(state)


def arrive(state: State) -> None:
    """Jobs enter their queue at their submit, or when the last job that they wait for ends."""
    submitted = [request for request in state.arriving if request.submit_us == state.now_us]
    state.arriving = [request for request in state.arriving if request not in submitted]
    state.waiting_for_others += submitted
    for request in sorted(state.waiting_for_others, key=lambda request: request.id):
        if has_to_wait_for_none(request.job, state.outcomes, state.jobs):
            state.waiting_for_others.remove(request)
            enter_queue_first(state, request)


def enter_queue_first(state: State, request: Request) -> None:
    prediction_us = state.finished.prediction_us(request.job)
    state.predictions_us[request.id] = prediction_us
    if state.settings.estimates == "history":
        request = replace(request, estimate_us=prediction_us)
    if request.job.gpus > 0:
        state.arrived[request.job.gpus, request.job.gpu_milli] += 1
    state.enter_queue(request)


def finish(state: State, run: Running) -> None:
    request, kept = run.request, state.kept_of(run.request.id)
    state.release(run)
    state.record(run, state.now_us, run.status)
    kept.attained_us += run.run_us
    counts_us = request.duration_us
    if run.status == "timeout":
        assert request.estimate_us is not None
        counts_us = min(counts_us, request.estimate_us)
    state.finished.add(request.job, counts_us, kept.attained_us)
    start_us, backfilled = state.first_begin[request.id]
    last = state.runs[-1]
    state.outcomes[request.id] = Outcome(
        start_us, state.now_us, run.status, run.allocation, last.gpu_index, backfilled
    )


def repair(state: State, node: int) -> None:
    what = state.node_states[node]
    state.changed_us = state.now_us
    what.is_down = False
    what.idle_since_us = state.now_us
    what.changes_us = state.now_us + state.time_to_failure_us(node)


def fail(state: State, node: int) -> None:
    """Section 16."""
    what = state.node_states[node]
    state.changed_us = state.now_us
    what.changes_us = state.now_us + state.time_to_repair_us(node)
    what.failures += 1
    what.is_down = True
    what.awake_us = 0
    for run in sorted(state.running, key=lambda run: run.request.id):
        if any(part.node == node for part in run.held):
            if run.begun:
                fail_run(state, run)
            else:  # it waited for nodes to wake: as if it had not started
                state.release(run)
                state.queued.append(run.request)
    for promise in sorted(state.promises.values(), key=lambda promise: promise.request.id):
        if any(id == node for id, _ in promise.allocation):
            void(state, promise)
            if not promise.is_move:
                state.queued.append(promise.request)
            elif state.run_of(promise.request.id) is None:  # its stop has taken effect already
                state.enter_queue(promise.request)


def void(state: State, promise: Promise) -> None:
    """The nodes of the promise open again."""
    del state.promises[promise.request.id]
    for id, _ in promise.allocation:
        state.node_states[id].idle_since_us = state.now_us


def fail_run(state: State, run: Running) -> None:
    settings, request = state.settings, run.request
    progress_us = run.progress_us(state.now_us)
    kept_us = 0
    if settings.checkpoint_every_s is not None:
        kept_us = progress_us - progress_us % to_us(settings.checkpoint_every_s)
    state.release(run)
    lost_us = state.work_us(run, progress_us) - state.work_us(run, kept_us)
    stop_us = state.now_us if run.stopped_us is None else run.stopped_us
    state.record(run, stop_us, "failed", lost_us)
    state.keep(run, progress_us, kept_us)
    state.kept_of(request.id).failures += 1
    if state.kept_of(request.id).failures >= MOST_FAILURES:
        raise ValueError(f"job {request.id} has failed {MOST_FAILURES} times: {request.job}")
    if request.id in state.promises:  # it was being moved
        void(state, state.promises[request.id])
    state.enter_queue(request)


def end_stop(state: State, run: Running) -> None:
    """The stop takes effect: the run releases, and its job enters its queue unless it is being moved."""
    assert run.stopped_us is not None
    state.release(run)
    state.record(run, run.stopped_us, "stopped")
    progress_us = run.progress_us(state.now_us)
    state.keep(run, progress_us, progress_us)
    if run.request.id not in state.promises:
        state.enter_queue(run.request)


def begin(state: State) -> None:
    """Jobs that waited for nodes to wake, or for others to stop, begin, by ascending id."""
    waking = [run for run in state.running if not run.begun and run.begin_us == state.now_us]
    promised = [promise for promise in state.promises.values() if promise.begin_us == state.now_us]
    for job in sorted((*waking, *promised), key=lambda job: job.request.id):
        if isinstance(job, Running):
            state.begin(job)
        else:
            state.fulfil(job)
