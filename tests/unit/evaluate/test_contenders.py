"""Which policies are compared, and what they are called."""

from gpuyard.evaluate.contenders import contender_of, with_labels
from gpuyard.simulation.find import find_policy


def labels(*policies: str) -> list[str]:
    return [one.entry.label for one in with_labels([contender_of(find_policy(name)) for name in policies])]


def test_names_have_their_placement_where_placements_differ_and_only_there() -> None:
    assert labels("sjf+easy/spread", "saf+easy/spread") == ["sjf+easy", "saf+easy"]
    assert labels("sjf+easy/spread", "saf+easy/best-fit") == ["sjf+easy/spread", "saf+easy/best-fit"]


def test_what_was_recorded_has_no_placement_that_others_differ_from() -> None:
    assert labels("recorded", "sjf+easy/spread", "saf+easy/spread") == ["recorded", "sjf+easy", "saf+easy"]
