"""Whatever a name contains, it stays text: no emphasis, no HTML, no cell border, no closed fence."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.text.clean import clean
from tui_debugger.text.markdown import LONGEST, code, fenced, prose, table, with_tilde

HOSTILE = st.text(alphabet=st.sampled_from("ab1 |`<>[]()*_\\~#@!&{}\n\t\x1b\u202e.-/"), max_size=30)
SPECIAL = re.compile(r"(?<!\\)(?:\\\\)*[`*_\[\]~|<>]")


def shown(markdown: str) -> str:
    """What a reader sees of prose: escapes and entities resolved."""
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown)).replace("\u200b", "")


@given(HOSTILE)
def test_prose_shows_the_text_and_nothing_in_it_is_markup(text: str) -> None:
    found = prose(text)
    assert "\n" not in found
    without_entities = re.sub(r"&(?:#?\w+);", "", found)
    assert not SPECIAL.search(without_entities), found
    assert not re.search(r"(?<!&)[@#](?=\w)", found), found  # GitHub would tell a person, or link an issue
    assert shown(found) == clean(text)


@given(HOSTILE)
def test_code_shows_the_text_and_has_no_bar(text: str) -> None:
    found = code(text)
    assert "|" not in found
    assert "\n" not in found
    inner = found[6:-7] if found.startswith("<code>") else found[1:-1]
    expected = clean(text).strip()
    if expected:
        assert html.unescape(inner) == expected if found.startswith("<code>") else inner == expected
        assert "`" not in inner
    else:
        assert found == "–"


@given(st.lists(HOSTILE, max_size=5))
def test_no_line_closes_its_fence(lines: list[str]) -> None:
    first, *body, last = fenced(lines)
    fence = first.removesuffix("text")
    assert last == fence
    assert len(fence) >= 3
    assert body == [clean(line) for line in lines]
    assert all(fence not in line for line in body)


def test_a_table_has_one_line_per_row_and_aligns_numbers() -> None:
    assert list(table(("step", "tensor"), [("3", code("a|b"))], right=("step",))) == [
        "| step | tensor |",
        "|--:|---|",
        "| 3 | <code>a&#124;b</code> |",
    ]


def test_a_very_long_name_keeps_both_ends() -> None:
    found = code("a" * 1000 + "z")
    assert len(found) == LONGEST + 1
    assert found.startswith("`aaa")
    assert found.endswith("az`")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/alice/run/train.py:3", "~/run/train.py:3"),
        ("/home/alice", "~"),
        ("file:///home/alice/x", "file://~/x"),
        ("at /home/alice: /home/alice/x", "at ~: ~/x"),
        ("/home/alice.old/x", "/home/alice.old/x"),
        ("/home/alices/x", "/home/alices/x"),
        ("/home/bob/x", "/home/bob/x"),
        ("/data/home/alice/x", "/data/home/alice/x"),
        ("Default/home/alice", "Default/home/alice"),
    ],
)
def test_only_the_user_s_own_home_is_a_tilde(monkeypatch: pytest.MonkeyPatch, text: str, left: str) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    assert with_tilde(text) == left
