"""What every registered rule must do. Rules are found through the registry: a new one is tested by being there."""

import re
from functools import cache
from pathlib import Path

import pytest

from differential.cases import Case, random_case
from differential.core_runs import StepByStep, cluster_of, workload_of
from gpuyard import _core
from gpuyard.cluster import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.base import parse_policy
from gpuyard.policies.heuristics import Heuristic
from gpuyard.registry import registered
from gpuyard.simulate import simulate
from gpuyard.workload import Workload, synthesize
from invariants import check_result

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"
ORDERS, BACKFILLS, PLACEMENTS = (tuple(registered(kind)) for kind in ("order", "backfill", "placement"))
POLICIES = list(
    dict.fromkeys(
        [f"{order}+{backfill}/consolidate" for order in ORDERS for backfill in BACKFILLS]
        + [f"fifo+{backfill}/{placement}" for placement in PLACEMENTS for backfill in BACKFILLS]
        + [f"{order}+easy+express:20:0.2/spread" for order in ORDERS]
    )
)
