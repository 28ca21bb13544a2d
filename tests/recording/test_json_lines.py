"""JSON with its lines: what is right is read as Python reads it, what is wrong is named and read on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.recording.json_lines import DEEPEST, MOST_SLIPS, Slip, parse

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 1, 4]), st.booleans())
def test_what_is_right_is_read_as_python_reads_it(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a lone surrogate can stand in a file only as an escape
        data = json.dumps(value, indent=indent).encode()
    found = parse(data)
    assert found.problems == []
    assert found.root is not None
    assert found.root.plain == value


@given(st.text(alphabet="{}[],:\"'\\/#*-+.eE0x1truefalsN \n\t\ufeffé"))
def test_nothing_is_too_odd_to_be_looked_at(text: str) -> None:
    found = parse(text.encode())
    try:
        plain = json.loads(text)
    except ValueError:
        assert found.problems
    else:
        assert not [each for each in found.problems if each.slip not in {Slip.DUPLICATE, Slip.NOT_FINITE}]
        if not found.problems:
            assert found.root is not None
            assert found.root.plain == plain


@given(st.binary(max_size=200))
def test_any_bytes_are_looked_at(data: bytes) -> None:
    parse(data)


@pytest.mark.parametrize(
    ("text", "slip", "line", "says"),
    [
        ('{"a": 1,\n "b": 2,\n}', Slip.COMMA, 2, "a comma stands before }"),
        ("[1,\n2\n,]", Slip.COMMA, 3, "a comma stands before ]"),
        ('{"a": 1\n "b": 2}', Slip.COMMA, 2, "a comma is missing"),
        ("[1,,2]", Slip.COMMA, 1, "a comma too many"),
        ('// no\n{"a": 1}', Slip.COMMENT, 1, "comments"),
        ('{"a": 1, # no\n "b": 2}', Slip.COMMENT, 1, "comments"),
        ('{"a": /* no\n no */ 1}', Slip.COMMENT, 1, "comments"),
        ("{'a': 1}", Slip.QUOTES, 1, "double quotation marks"),
        ("{a: 1}", Slip.QUOTES, 1, "the key a has no quotation marks"),
        ('{"a" = 1}', Slip.WORD, 1, "= stands behind a"),
        ('{"a": True}', Slip.WORD, 1, "True is no JSON"),
        ('{"a": yes}', Slip.WORD, 1, "yes is no value"),
        ('{"a": NaN}', Slip.NOT_FINITE, 1, "NaN is no number"),
        ('{"a": -Infinity}', Slip.NOT_FINITE, 1, "Infinity is no number"),
        ('{"a": 007}', Slip.NUMBER, 1, "007 is no number"),
        ('{"a": +1}', Slip.NUMBER, 1, r"+1 is no number"),
        ('{"a": 0x10}', Slip.NUMBER, 1, "0x10 is no number"),
        ('{"a": "\\q"}', Slip.TEXT, 1, "a backslash that means nothing"),
        ('{"a": "x\ty"}', Slip.TEXT, 1, "control character"),
        ('{"a": 1,\n\n"a": 2}', Slip.DUPLICATE, 3, "on line 1 and on line 3; the last one counts"),
        ('{"a": 1}\n{"b": 2}', Slip.REST, 2, "behind the end"),
        ('\ufeff{"a": 1}', Slip.BOM, 1, "byte order mark"),
        ('{"a": [1', Slip.END, 1, "a list that begins on line 1 has no end"),
        ('{"a":\n "x', Slip.END, 2, "no closing quotation mark"),
        ('{"a": [1}', Slip.END, 1, "} stands where ] belongs"),
        ('{"a" 1}', Slip.END, 1, "no : stands behind the key a"),
        ('{"a":', Slip.END, 1, "ends in the middle"),
        ("", Slip.END, 1, "the file is empty"),
        ("[" * (DEEPEST + 2), Slip.END, 1, "stand inside each other"),
    ],
)
def test_a_slip_has_its_line_and_its_words(text: str, slip: Slip, line: int, says: str) -> None:
    (problem,) = parse(text.encode()).problems
    assert (problem.slip, problem.line) == (slip, line)
    assert says in problem.what
    assert problem.hint


def test_it_is_read_on_behind_a_slip() -> None:
    found = parse(b"{'a': True, // first\n 'b': [1, 2,],}")
    assert found.root is not None
    assert found.root.plain == {"a": True, "b": [1, 2]}
    assert {each.slip for each in found.problems} == {Slip.QUOTES, Slip.WORD, Slip.COMMENT, Slip.COMMA}


def test_the_path_of_a_slip_is_said() -> None:
    (problem,) = parse(b'{"a": {"b": True}}').problems
    assert problem.key == "a.b"


def test_a_file_of_nothing_but_slips_ends() -> None:
    assert len(parse(b"{" + b"a=b\n" * 10_000).problems) == MOST_SLIPS


def test_other_encodings() -> None:
    assert "UTF-16" in parse('{"a": 1}'.encode("utf-16")).problems[0].what
    (problem,) = parse(b'{"a": 1,\n"b": "\xff"}').problems
    assert (problem.slip, problem.line) == (Slip.TEXT, 2)


def test_values_know_their_lines() -> None:
    root = parse(b'{\n"a":\n [1,\n 2]}').root
    assert root is not None
    assert isinstance(root.content, dict)
    member = root.content["a"]
    assert (member.line, member.value.line) == (2, 3)
    assert isinstance(member.value.content, list)
    assert [each.line for each in member.value.content] == [3, 4]


def test_numbers_beyond_64_bits_are_no_whole_numbers() -> None:
    root = parse(b"[18446744073709551615, 18446744073709551616, 1e400, " + b"9" * 5000 + b"]").root
    assert root is not None
    assert isinstance(root.content, list)
    assert [each.is_whole for each in root.content] == [True, False, False, False]
