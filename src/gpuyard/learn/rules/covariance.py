"""The strategy of CMA-ES (Hansen), with random draws of its own."""

import warnings
from typing import Any

import numpy as np

from gpuyard.errors import InputError


def covariance_strategy(size: int, sigma: float, population: int, seed: int) -> Any:
    """A distribution around 0 that adapts to what it is told.

    Args:
        size: Numbers of a point.
        sigma: First step size.
        population: Points of a generation.
        seed: Of its draws.

    Raises:
        InputError: if the package ``cma`` is missing.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it cannot plot
            import cma  # type: ignore[import-untyped]
    except ImportError:
        raise InputError(
            "tuning a rule needs the package cma: pip install 'gpuyard[search]' (a search does without it if "
            "generations = 0)"
        ) from None
    options = {
        "popsize": population,
        # Its own random numbers: by default it takes, and seeds, those of the whole process.
        "randn": np.random.RandomState(seed % 2**32).randn,
        "seed": np.nan,
        "verbose": -9,
        "verb_log": 0,
        "verb_disp": 0,
        "maxiter": np.inf,
    }
    return cma.CMAEvolutionStrategy(np.zeros(size), sigma, options)
