"""Single formulas of the core against the reference's, bit by bit, on inputs of all magnitudes.

Whole simulations compare scores only with one another, so a last bit that differs rarely shows there.
"""

import math
import random
import struct

import numpy as np
import pytest

from gpuyard import _core
from reference.simulator import simulator as reference
from reference.simulator.simulator import Job, Policy, Pool, Request, Settings, Simulation, Usage

TRIALS = 3_000
ORDERS = reference.ORDERS_BY_ESTIMATE + reference.OTHER_ORDERS


def bits(value: float) -> bytes:
    """Tells -0.0 from 0.0, and every last bit."""
    return struct.pack("<d", value)


def random_us(rng: random.Random, largest: int = reference.LARGEST_INPUT_US) -> int:
    """1 to `largest` microseconds: as often below a second as above a year, and often round."""
    us = int(math.exp(rng.uniform(0.0, math.log(largest))))
    return min(largest, max(1, rng.choice((us, us, 1_000_000 * (us // 1_000_000), 10 ** len(str(us))))))


def random_job(rng: random.Random) -> Job:
    milli = rng.choice((1000, 1000, rng.randint(1, 999)))
    gpus = rng.choice((0, 1, 2, 3, 8, rng.randint(1, 64), rng.randint(1, 100_000))) if milli == 1000 else 1
    deadline_us = rng.choice((None, -random_us(rng), 0, random_us(rng)))
    return Job(
        submit_s=0.0,
        duration_s=1.0,
        gpus=gpus,
        gpu_milli=milli,
        priority=rng.choice((0.0, -0.0, 1.0, rng.uniform(-9, 9), rng.uniform(-1e300, 1e300), 5e-324)),
        deadline_s=None if deadline_us is None else deadline_us / 1e6,
    )


def random_request(rng: random.Random, job: Job) -> Request:
    row = rng.choice((0, rng.randrange(1000), rng.randrange(2**63)))
    estimate_us = None if rng.random() < 0.05 else random_us(rng)
    return Request(0, row, job, rng.choice((0, random_us(rng))), 1, estimate_us)


def random_moment(rng: random.Random, order: str, request: Request) -> Simulation:
    settings = Settings(
        seed=rng.choice((0, rng.randrange(2**63))),
        origin_s=rng.choice((0.0, 0.25, 1.0, rng.uniform(-1e9, 1e9), random_us(rng) / 1e6)),
    )
    moment = Simulation([], [], [], Policy(order), settings)
    moment.now_us = request.submit_us + rng.choice((0, random_us(rng)))
    moment.instant = rng.choice((0, rng.randrange(2**40)))
    moment.usage[""] = Usage(gpu_s=rng.choice((0.0, rng.uniform(0, 1e12))), updated_us=moment.now_us)
    return moment


def native_score(order: str, request: Request, moment: Simulation) -> float:
    job = request.job
    name, _, number = order.partition(":")
    return _core.testing.score(
        name,
        request.submit_us,
        _core.ENDLESS if request.estimate_us is None else request.estimate_us,
        job.size,
        job.priority,
        _core.ENDLESS if job.deadline_s is None else reference.to_us(job.deadline_s),
        request.row,
        moment.usage[""].gpu_s,
        moment.now_us,
        moment.instant,
        moment.settings.seed,
        moment.settings.origin_s,
        float(number or 1),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_scores_have_the_same_bits(order: str) -> None:
    rng = random.Random(order)
    for _ in range(TRIALS):
        request = random_request(rng, random_job(rng))
        moment = random_moment(rng, order, request)
        native, expected = native_score(order, request, moment), moment.score(request)
        assert bits(native) == bits(expected), f"{native!r} is not {expected!r}: {request}, {moment}"


def reference_run_time(
    duration_us: int, speed: float, nodes_used: int, fewest_nodes: int, penalty: float
) -> int | None:
    pool = Pool(0, 1, "a100", None, speed, tuple(range(nodes_used)))
    allocation = tuple((node, 1) for node in pool.nodes)
    try:
        return reference.run_time_us(duration_us, Job(0, 1, fewest_nodes), allocation, [pool], penalty)
    except ValueError:
        return None


def native_run_time(*arguments: float) -> int | None:
    try:
        return _core.testing.run_time(*arguments)  # type: ignore[arg-type]
    except OverflowError:
        return None


def test_run_times_have_the_same_bits_and_overflow_together() -> None:
    rng = random.Random("run times")
    overflows = 0
    for _ in range(5 * TRIALS):
        fewest = rng.choice((1, 1, 2, 3, 7, rng.randint(1, 100)))
        arguments = (
            random_us(rng),
            rng.choice((1.0, 0.5, 2.0, 1 / 3, 0.1, 2.9, rng.uniform(0.01, 9), 10 ** rng.uniform(-5, 6))),
            fewest + rng.choice((0, 1, 2, rng.randrange(20))),
            fewest,
            rng.choice((0.0, 0.1, 0.3, 1.0, rng.uniform(0, 1), 10 ** rng.uniform(-3, 3))),
        )
        native, expected = native_run_time(*arguments), reference_run_time(*arguments)
        assert native == expected, arguments
        overflows += expected is None
    assert 0 < overflows < TRIALS


def test_run_times_round_half_to_even_and_never_to_0() -> None:
    assert [_core.testing.run_time(us, 2.0, 1, 1, 0.0) for us in (1, 2, 3, 5, 7)] == [1, 1, 2, 2, 4]
    assert _core.testing.run_time(1, 1e6, 1, 1, 0.0) == 1
    assert _core.testing.run_time(_core.ENDLESS, 2.0, 1, 1, 0.0) == _core.ENDLESS


def test_decayed_usage_has_the_same_bits() -> None:
    rng = random.Random("usage")
    for _ in range(TRIALS):
        half_life_s = rng.choice((604800.0, 3600.0, 10 ** rng.uniform(-3, 9)))
        moment = Simulation([], [], [], Policy("fair-share"), Settings(usage_half_life_s=half_life_s))
        held: list[Job] = []
        changes = []
        for _ in range(rng.randint(0, 12)):
            moment.now_us += rng.choice((0, random_us(rng, 2**48)))
            ends = held and rng.random() < 0.4
            job = held.pop(rng.randrange(len(held))) if ends else random_job(rng)
            if not ends:
                held.append(job)
            sign = -1 if ends else 1
            moment.add_usage(job, sign)
            changes.append((moment.now_us, sign * job.gpus * job.gpu_milli))
        now_us = moment.now_us + rng.choice((0, random_us(rng, 2**48)))
        native = _core.testing.decayed_usage(changes, now_us, half_life_s)
        expected = moment.usage.get("", Usage()).at(now_us, half_life_s)
        assert bits(native) == bits(expected), (changes, now_us, half_life_s)


def test_draws_are_the_same_for_keys_of_all_magnitudes() -> None:
    rng = random.Random("draws")
    for _ in range(TRIALS):
        key = [
            rng.choice((0, 1, 2**64 - 1, rng.getrandbits(8), rng.getrandbits(32), rng.getrandbits(64)))
            for _ in range(4)
        ]
        assert _core.draw(*key) == reference.draw(*key), key


def test_uniforms_and_normals_have_the_same_bits() -> None:
    for seed, stream in ((0, 16), (1, 1), (2**63 - 1, 17), (12345, 2**32)):
        uniforms, normals = _core.uniforms(seed, stream, TRIALS), _core.normals(seed, stream, TRIALS)
        for i in range(TRIALS):
            assert bits(uniforms[i]) == bits(reference.uniform(seed, stream, i, 0)), (seed, stream, i)
            assert bits(normals[i]) == bits(reference.normal(seed, stream, i, 0)), (seed, stream, i)


@pytest.mark.parametrize("sigma", [0.0, 0.1, 1.0, 3.7, 10.0])
def test_noisy_estimates_are_the_same_to_the_microsecond(sigma: float) -> None:
    rng = random.Random(sigma)
    settings = Settings(estimates="noisy", noise_sigma=sigma, seed=rng.randrange(2**63))
    duration_us = [random_us(rng) for _ in range(TRIALS)]
    row = [rng.choice((i, rng.randrange(2**63))) for i in range(TRIALS)]
    native = _core.noisy_estimates(np.array(duration_us), np.array(row), settings.seed, sigma)
    job = Job(0, 1, 1)
    expected = [reference.estimate(job, row[i], duration_us[i], settings) for i in range(TRIALS)]
    assert native.tolist() == expected
    if sigma == 10.0:
        assert {1, 2**53} < set(expected), "neither bound of an estimate was met"
