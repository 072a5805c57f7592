"""The environments' ids at Gymnasium."""

import gymnasium

from gpuyard.errors import InputError
from gpuyard.registry import suggest

KINDS = {
    "gpuyard/SelectJob-v0": "select-job",
    "gpuyard/SelectHost-v0": "select-host",
    "gpuyard/RankHosts-v0": "rank-hosts",
    "gpuyard/SelectJobAndPool-v0": "select-job-and-pool",
    "gpuyard/AcceptOrSkip-v0": "accept-or-skip",
}


def checked_kind(name: str) -> str:
    """The kind of environment of that name or id.

    Raises:
        InputError: for an unknown one, with the closest.
    """
    kinds = dict.fromkeys(KINDS.values())
    if name in KINDS:
        return KINDS[name]
    if name not in kinds:
        raise InputError(f"unknown kind of environment {name!r}{suggest(name, kinds)}")
    return name


def register_environments() -> None:
    """Make the ids known; a second call changes nothing."""
    for env_id, kind in KINDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="gpuyard.env.single:SchedulingEnv",
                vector_entry_point="gpuyard.env.vector:SchedulingVectorEnv",
                kwargs={"kind": kind},
                # Episodes that end by drain need no limit, and the mask must be obeyed.
                max_episode_steps=None,
            )
