"""The memory of past steps: n-step returns, priorities, and taking up where a run stopped."""

from typing import Any

import numpy as np
import pytest
import torch

from gpuyard.errors import InputError
from gpuyard.learn.memory.replay import Batch, Replay
from gpuyard.learn.memory.sum_tree import SumTree
from support.small_learning import SIZES, step


def drawn(replay: Replay, discount: float = 0.5, count: int = 2000) -> dict[int, tuple[float, ...]]:
    """By the number of the state: action, return, number of the state after it, discount."""
    batch = replay.sample(count, np.random.default_rng(0), discount=discount)
    rows = zip(
        batch.observation["globals"][:, 0].tolist(),
        batch.actions.tolist(),
        batch.returns.tolist(),
        batch.next_observation["globals"][:, 0].tolist(),
        batch.discounts.tolist(),
        strict=True,
    )
    return {int(number): rest for number, *rest in rows}


def filled(steps: int, **settings: Any) -> Replay:
    """One environment in state t at time t, with reward t + 1."""
    replay = Replay(100, SIZES, 1, **settings)
    for t in range(steps):
        replay.add(step([t], [t + 1.0]))
    return replay


@pytest.mark.parametrize("prioritised", [False, True])
def test_returns_add_up_n_discounted_rewards_and_lead_n_steps_on(prioritised: bool) -> None:
    seen = drawn(filled(6, n_steps=3, prioritised=prioritised))
    assert seen == {
        0: [0, 1 + 2 / 2 + 3 / 4, 3, 1 / 8],
        1: [1, 2 + 3 / 2 + 4 / 4, 4, 1 / 8],
        2: [2, 3 + 4 / 2 + 5 / 4, 5, 1 / 8],
    }


def test_nothing_is_added_or_hoped_for_after_an_episode_terminated() -> None:
    replay = Replay(100, SIZES, 1, n_steps=3)
    for t in range(7):
        replay.add(step([t], [t + 1.0], terminated=[0] if t == 2 else []))
    seen = drawn(replay)
    assert seen[0][1::2] == [1 + 2 / 2 + 3 / 4, 0]
    assert seen[1][1::2] == [2 + 3 / 2, 0]
    assert seen[2][1::2] == [3, 0]
    assert seen[3][1:] == [4 + 5 / 2 + 6 / 4, 6, 1 / 8]


def test_a_truncated_episode_is_valued_by_its_own_last_observation() -> None:
    replay = Replay(100, SIZES, 1, n_steps=3)
    for t in range(7):
        replay.add(step([t], [t + 1.0], truncated={0: 77.0} if t == 2 else None))
    seen = drawn(replay)
    assert seen[0][1:] == [1 + 2 / 2 + 3 / 4, 77, 1 / 8]
    assert seen[1][1:] == [2 + 3 / 2, 77, 1 / 4]
    assert seen[2][1:] == [3, 77, 1 / 2]
    assert seen[3][1:] == [4 + 5 / 2 + 6 / 4, 6, 1 / 8]


def test_an_episode_that_terminated_and_was_cut_off_at_once_counts_as_terminated() -> None:
    replay = Replay(100, SIZES, 1)
    replay.add(step([0], [1.0], terminated=[0], truncated={0: 77.0}))
    replay.add(step([1], [1.0]))
    assert drawn(replay)[0][3] == 0


def test_ends_in_one_environment_do_not_touch_another() -> None:
    replay = Replay(100, SIZES, 3, n_steps=2)
    for t in range(4):
        ends = {"terminated": [0], "truncated": {2: 99.0}} if t == 1 else {}
        replay.add(step([t, 10 + t, 20 + t], [1.0, 10.0, 100.0], **ends))
    seen = drawn(replay)
    assert seen[0][1:] == [1.5, 2, 0]
    assert seen[1][1::2] == [1, 0]
    assert seen[10][1:] == [15, 12, 0.25]
    assert seen[11][1:] == [15, 13, 0.25]
    assert seen[20][1:] == [150, 99, 0.25]
    assert seen[21][1:] == [100, 99, 0.5]


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("steps", [4, 5, 6, 9, 13])
def test_only_what_is_held_together_with_what_follows_is_sampled(steps: int, prioritised: bool) -> None:
    replay = Replay(10, SIZES, 2, n_steps=2, prioritised=prioritised)  # 5 steps of 2 environments
    for t in range(steps):
        replay.add(step([t, 100 + t], [t, t], truncated={0: 1000.0 + t} if t % 4 == 3 else None))
    held = range(max(0, steps - 5), steps - 2)
    seen = drawn(replay)
    assert sorted(seen) == [*held, *(100 + t for t in held)]
    assert len(replay) == 2 * len(held)
    assert replay.held == 2 * min(steps, 5)
    for t in held:
        assert seen[100 + t][1:3] == [t + (t + 1) / 2, 102 + t]
        cut = next((s for s in (t, t + 1) if s % 4 == 3), None)
        assert seen[t][2] == (t + 2 if cut is None else 1000 + cut)


def test_rewards_are_scaled_after_they_were_summed() -> None:
    replay = filled(4, n_steps=2)
    batch = replay.sample(50, np.random.default_rng(0), discount=0.5, scale=4.0)
    states = batch.observation["globals"][:, 0]
    torch.testing.assert_close(batch.returns, (states + 1 + (states + 2) / 2) / 4)


def test_half_precision_rounds_observations_and_hands_them_out_as_float32() -> None:
    replay = filled(3, storage="float16")
    replay.add(step([0.1], [0.0]))
    replay.add(step([0.2], [0.0]))
    batch = replay.sample(200, np.random.default_rng(0), discount=1.0)
    assert batch.observation["jobs"].dtype == torch.float32
    assert float(np.float16(0.1)) in batch.observation["jobs"].double().flatten().tolist()


def test_too_small_a_memory_is_refused() -> None:
    with pytest.raises(InputError, match="raise capacity"):
        Replay(30, SIZES, 10, n_steps=3)


def test_pieces_of_a_batch_make_up_the_batch() -> None:
    batch = filled(20).sample(10, np.random.default_rng(0), discount=1.0)
    pieces = list(batch.parts(3))
    assert [len(piece.actions) for piece in pieces] == [4, 3, 3]
    assert torch.equal(torch.cat([piece.returns for piece in pieces]), batch.returns)
    jobs = [piece.next_observation["jobs"] for piece in pieces]
    assert torch.equal(torch.cat(jobs), batch.next_observation["jobs"])


# --- Priorities ---


def test_a_sum_tree_draws_in_proportion_to_weights_and_never_a_weight_of_0() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(37) * (rng.random(37) < 0.6)
    tree = SumTree(37)
    tree.set(np.arange(37), weights)
    counts = np.bincount(np.concatenate([tree.sample(64, rng) for _ in range(2000)]), minlength=37)
    assert len(counts) == 37
    assert not counts[weights == 0].any()
    np.testing.assert_allclose(counts / counts.sum(), weights / weights.sum(), atol=0.002)


def test_each_equal_share_of_a_sum_tree_is_drawn_from_once() -> None:
    tree = SumTree(8)
    tree.set(np.arange(8), np.ones(8))
    for seed in range(20):
        assert tree.sample(8, np.random.default_rng(seed)).tolist() == list(range(8))


def test_sums_do_not_depend_on_the_order_in_which_weights_were_set() -> None:
    rng = np.random.default_rng(1)
    weights = rng.random(100) * 10.0 ** rng.integers(-8, 8, size=100)
    at_once, in_turn = SumTree(100), SumTree(100)
    at_once.set(np.arange(100), weights)
    for entry in rng.permutation(100):
        in_turn.set(np.array([entry, entry]), np.array([7.0, weights[entry]]))
    assert at_once.total == in_turn.total
    one, other = (tree.sample(500, np.random.default_rng(2)) for tree in (at_once, in_turn))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_rounding_never_leads_to_an_entry_that_does_not_exist(size: int) -> None:
    class AlmostOne:
        def random(self, count: int) -> Any:
            return np.full(count, np.nextafter(1.0, 0.0))

    tree = SumTree(size)
    tree.set(np.arange(size), np.full(size, 0.1))
    assert tree.sample(64, AlmostOne()).max() <= size - 1  # type: ignore[arg-type]


def test_importance_weights_undo_priorities() -> None:
    replay = filled(5, prioritised=True)
    replay.prioritise(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]))
    batch = replay.sample(400, np.random.default_rng(0), discount=1.0, correction=1.0)
    counts = torch.bincount(batch.entries, minlength=4)
    assert counts.tolist() == [40, 80, 120, 160]
    # (4 · p)^-1 is 10/4, 10/8, 10/12, 10/16; divided by the largest
    expected = torch.tensor([1.0, 1 / 2, 1 / 3, 1 / 4])
    torch.testing.assert_close(batch.weights, expected[batch.entries])
    weighted = torch.zeros(4).index_add(0, batch.entries, batch.weights)
    torch.testing.assert_close(weighted, torch.full((4,), 40.0))


def test_weights_without_correction_are_1_and_half_of_it_is_the_root() -> None:
    replay = filled(5, prioritised=True)
    replay.prioritise(np.arange(4), np.array([1.0, 4.0, 4.0, 4.0]))
    batch = replay.sample(100, np.random.default_rng(0), discount=1.0, correction=0.0)
    assert set(batch.weights.tolist()) == {1.0}
    batch = replay.sample(100, np.random.default_rng(0), discount=1.0, correction=0.5)
    assert sorted(set(batch.weights.tolist())) == [0.5, 1.0]


def test_new_steps_are_as_urgent_as_the_most_urgent_so_far() -> None:
    replay = filled(3, prioritised=True)
    replay.prioritise(np.array([0, 1]), np.array([9.0, 1.0]))
    replay.add(step([3], [0.0]))
    assert replay.tree is not None
    assert replay.tree.values(np.arange(4)).tolist() == [9.0, 1.0, 9.0, 0.0]


# --- Taking up ---


def same(one: Batch, other: Batch) -> bool:
    parts = ("jobs", "nodes", "globals", "mask")
    pairs = [(one.observation[name], other.observation[name]) for name in parts]
    pairs += [(one.next_observation[name], other.next_observation[name]) for name in parts]
    pairs += [(getattr(one, name), getattr(other, name)) for name in ("actions", "returns", "discounts")]
    return all(torch.equal(*pair) for pair in [*pairs, (one.weights, other.weights)])


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("count", [3, 5, 8, 23])
def test_a_memory_that_was_saved_and_filled_again_samples_the_same(count: int, prioritised: bool) -> None:
    def history(t: int) -> Any:
        return step(
            [t, 50 + t],
            [t, -t],
            terminated=[1] if t % 3 == 0 else [],
            truncated={0: -t} if t % 5 == 0 else {},
        )

    def make() -> Replay:
        return Replay(10, SIZES, 2, n_steps=2, prioritised=prioritised)

    straight, resumed = make(), make()
    rng = np.random.default_rng(0)
    for t in range(count):
        straight.add(history(t))
        if len(straight):
            drawn_now = straight.sample(4, rng, discount=0.9)
            straight.prioritise(drawn_now.entries.numpy(), rng.random(4) + 0.1)
    resumed.restore(straight.state())
    for t in range(max(0, count - resumed.places), count):
        assert resumed.awaited
        resumed.repeat(history(t))
    assert not resumed.awaited
    for t in range(count, count + 9):
        one, other = (
            memory.sample(6, np.random.default_rng(t), discount=0.9) for memory in (straight, resumed)
        )
        assert same(one, other)
        straight.add(history(t))
        resumed.add(history(t))


def test_the_same_generator_draws_the_same_and_another_does_not() -> None:
    for prioritised in (False, True):
        replay = filled(50, prioritised=prioritised)
        one, again, other = (
            replay.sample(32, np.random.default_rng(seed), discount=1.0).entries.tolist()
            for seed in (1, 1, 2)
        )
        assert one == again != other
