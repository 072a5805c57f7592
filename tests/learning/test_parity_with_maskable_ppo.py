"""PPO learns as fast and as far as sb3-contrib's MaskablePPO: same task, network, settings, first weights."""

import numpy as np
import pytest
import torch

from learning.shared_task import SharedSettings, held_out_return, learn_by_ours, learn_by_theirs

SETTINGS = SharedSettings()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("learn", [learn_by_ours, learn_by_theirs])
def test_a_few_updates_bring_more_than_the_order_of_arrival(learn: object) -> None:
    learnt = learn(SETTINGS, 0, (16,))  # type: ignore[operator]
    assert learnt.held_out > 0.6 * held_out_return("fifo+greedy")  # negative: the less the better


@pytest.mark.slow
def test_learning_curves_are_on_par() -> None:
    seeds, updates = range(5), (4, 8, 16, 32, 64)
    rules = {name: held_out_return(f"{name}+greedy") for name in ("fifo", "random", "sjf")}
    both = [[learn(SETTINGS, seed, updates) for seed in seeds] for learn in (learn_by_ours, learn_by_theirs)]
    own, peer = (np.array([[*learnt.returns, learnt.held_out] for learnt in each]) for each in both)
    error = np.sqrt((own.var(0, ddof=1) + peer.var(0, ddof=1)) / len(seeds))
    print(f"\n{rules}\nup to step, ours, MaskablePPO, two standard errors of the difference")
    for i, name in enumerate([*(f"{n * SETTINGS.steps_per_update:6d}" for n in updates), "held out"]):
        print(f"{name:>8}  {own[:, i].mean():7.3f}  {peer[:, i].mean():7.3f}  {2 * error[i]:.3f}")
    # Both learnt: of every seed, most of what the shortest first gains over the others, on held-out episodes.
    worst = max(rules["fifo"], rules["random"])
    gain = rules["sjf"] - worst
    for curves in (own, peer):
        assert (curves[:, -1] > worst + 0.75 * gain).all()
    # On the way and at the end means differ by chance alone: two standard errors, and a tenth of that gain.
    assert (np.abs(own.mean(0) - peer.mean(0)) < 2 * error + 0.1 * gain).all()
