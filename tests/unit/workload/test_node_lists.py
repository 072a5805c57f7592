"""Lists of nodes in one form."""

import polars as pl
import pytest

from gpuyard.cluster.hostlists import MOST_NODES, expanded_nodes
from gpuyard.workload.node_lists import canonical_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n01", "n01"),
        ("node[01-03]", "node01|node02|node03"),
        ("node[8-11]", "node8|node9|node10|node11"),
        ("node[08-11,20]", "node08|node09|node10|node11|node20"),
        ("node[1-2],gpu7,a[3]b", "node1|node2|gpu7|a3b"),
        ("rack[1-2]n[09-10]-x", "rack1n09-x|rack1n10-x|rack2n09-x|rack2n10-x"),
        ("b|a|b", "b|a"),
        (" b,a  c+d ", "b|a|c|d"),
    ],
)
def test_a_list_becomes_its_names_in_the_order_of_the_log_each_once(text, names):
    assert canonical_nodes(pl.Series([text])).to_list() == [names]
    assert expanded_nodes(text) == names.split("|")


@pytest.mark.parametrize(
    "text",
    ["", "None assigned", "(null)", None, "n[1-", "n1-3]", "n[3-1]", "n[x]", "n[]", f"n[0-{MOST_NODES}]"],
)
def test_a_list_that_says_nothing_or_cannot_be_read_is_null(text):
    assert canonical_nodes(pl.Series([text, "n1"], dtype=pl.String)).to_list() == [None, "n1"]


def test_names_that_are_in_the_one_form_already_stay():
    once = canonical_nodes(pl.Series(["n[1-3]", "n[1-3]", None, "m"]))
    assert canonical_nodes(once).to_list() == once.to_list() == ["n1|n2|n3", "n1|n2|n3", None, "m"]
