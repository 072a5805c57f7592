"""The agent's word among those of a site."""

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.serve.comments import Comment


def test_words_of_a_site_stay() -> None:
    comment = Comment.read("project: x; gpuyard:held; ticket 7")
    assert comment.is_held
    assert comment.with_own("gpuyard:4-2@gn1") == "project: x; ticket 7; gpuyard:4-2@gn1"
    assert comment.with_own("") == "project: x; ticket 7"


@given(st.text(max_size=40).filter(lambda text: "gpuyard:" not in text))
def test_what_was_there_before_is_there_again_afterwards(text: str) -> None:
    before = Comment.read(text)
    assert before.own == ""
    marked = before.with_own("gpuyard:1-1")
    assert Comment.read(marked).decision == "1-1"
    # Only blanks around separators may change, and only where there are some.
    assert Comment.read(marked).with_own("").replace(" ", "").replace(";", "") == "".join(
        part.strip() for part in text.split(";")
    ).replace(" ", "")


def test_a_decision_and_its_nodes_are_told_apart() -> None:
    comment = Comment.read("gpuyard:12-3@gn[1-2]")
    assert comment.decision == "12-3"
    assert not comment.is_held
    assert comment.pins("gn1,gn2")
    assert comment.pins("gn[1-2]")
    assert not comment.pins("gn1")
    assert not comment.pins("")
    assert not Comment.read("gpuyard:12-3").pins("gn1")
    assert Comment.read("gpuyard:held").decision == ""
