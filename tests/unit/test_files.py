"""Strict JSON: what is accepted, and how each refusal names its cause."""

import pytest

from gpuyard.files import is_text, parse_json


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": "\\ud800"}', "half of a UTF-16 pair"),
        ('["\\uDFFF"]', "half of a UTF-16 pair"),
        ('{"\\udc00": 1}', "half of a UTF-16 pair"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' appears twice"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e999]", "1e999 is beyond the range"),
        (f"[{'9' * 400}]", "beyond the range"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_cause(text, said):
    with pytest.raises(ValueError, match=said):
        parse_json(text)
    with pytest.raises(ValueError, match=said):
        parse_json(text.encode())


@pytest.mark.parametrize("data", [b"\xed\xa0\x80", b'"\xff"', b'"\xed\xa0\x80"'])
def test_bytes_that_are_no_utf8_are_refused(data):
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(data)


def test_whole_characters_large_numbers_and_a_byte_order_mark_are_accepted():
    text = '{"face": "\\ud83d\\ude00", "nul": "\\u0000", "state": 340282366920938463463374607431768211455}'
    expected = {"face": "\U0001f600", "nul": "\0", "state": 2**128 - 1}
    assert parse_json(text) == parse_json(b"\xef\xbb\xbf" + text.encode()) == expected


def test_leniently_numbers_may_be_infinite_and_nothing_else_changes():
    assert parse_json("[-Infinity, 1e999]", lenient=True) == [float("-inf"), float("inf")]
    with pytest.raises(ValueError, match="UTF-16"):
        parse_json('["\\ud800"]', lenient=True)


def test_text_is_looked_for_at_any_depth():
    assert is_text({"a": [1, None, {"b": "née"}]})
    assert not is_text({"a": [1, None, {"b": "\ud800"}]})
