"""Lists of names with ranges, read and written."""

import pytest

from gpuyard.cluster.hostlists import compressed_nodes, expanded_nodes


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gn01", "gn02", "gn03", "login"], "gn[01-03],login"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n09", "n10", "n100"], "n[09-10,100]"),
        (["n1", "n3", "n4", "m1"], "n[1,3-4],m1"),
        (["n2", "n1"], "n[2,1]"),
        (["1", "2"], "[1-2]"),
        (["a-10-0.example", "b"], "a-10-0.example,b"),
    ],
)
def test_names_are_written_as_ranges_that_stand_for_them_in_their_order(names, text):
    assert compressed_nodes(names) == text
    assert expanded_nodes(text) == names


def test_names_that_no_list_can_hold_are_not_written():
    assert compressed_nodes(["a b"]) is None
    assert compressed_nodes([]) is None
