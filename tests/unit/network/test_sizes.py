"""Sizes of networks: where the columns lie that networks read by name."""

import pytest

from gpuyard.network.sizes import NetworkSizes
from support.small_environments import KIND_NAMES, single

NAMED = {
    "jobs": {"job_present": "present", "job_base_choice": "base_choice"},
    "nodes": {"node_present": "present", "node_base_choice": "base_choice"},
    "globals": {"base_pool": "base_pool", "base_waits": "base_waits", "running": "running"},
}


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_a_column_is_found_where_the_observation_has_it(kind: str) -> None:
    model = single(kind).model
    sizes = NetworkSizes.of(model)
    for part, fields in NAMED.items():
        names = model.parts[part].names
        for field, name in fields.items():
            assert getattr(sizes, field) == (names.index(name) if name in names else -1), field
