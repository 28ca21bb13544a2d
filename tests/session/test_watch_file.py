"""Watchpoint files: what is written is read back, and no mistake in a file is passed over."""

from __future__ import annotations

import dataclasses
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.session.opened import snapshot
from tests.sources.writer import write_dump
from tests.watch.test_text import watchpoints as plain_watchpoints
from tui_debugger.errors import BadWatchpointError, TdbgError
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.session.watchpoints import (
    format_watch_file,
    parse_watch_file,
    read_watch_file,
    watchpoints_from,
    write_watch_file,
)

TOML = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ANY_TEXT = st.text(st.characters(), max_size=30) | st.text(
    "\\'\"#\r\n\t\0\x7f\x85\u2028\udcff\udc80\ud800u=[]é@, ", max_size=12
)
"""Quotes, backslashes, control characters, and the surrogates that stand for undecodable bytes."""


@st.composite
def any_watchpoint(draw: st.DrawFn) -> Watchpoint:
    made = draw(plain_watchpoints())
    kinds = st.sampled_from([NodeKind.NODE, NodeKind.SCOPE, NodeKind.TYPE])
    nodes = draw(st.lists(st.builds(NodeSelector, kinds, ANY_TEXT.filter(bool)), max_size=2))
    selection = made.selection
    if nodes:
        selection = NodeSelection((*selection.include, *nodes), selection.exclude)
    return dataclasses.replace(made, selection=selection, name=draw(ANY_TEXT), enabled=draw(st.booleans()))


def named(text: str, **changes: object) -> Watchpoint:
    selection = NodeSelection((NodeSelector(NodeKind.NODE, text),))
    return dataclasses.replace(Watchpoint(1, "tensor_overflow", (), selection), **changes)  # type: ignore[arg-type]


@given(st.lists(any_watchpoint(), max_size=4))
@example([named("caf\udce9\\u0041\\")])
@example([named("x", name="\udcff\\")])
@example([named('it\'s "\\d"')])
@example([named("\r\n")])
@example([named("\udcc3\udca9")])
def test_every_watchpoint_comes_back(watchpoints: list[Watchpoint]) -> None:
    text = format_watch_file(watchpoints, {"run": "/data/\udcff\n'\"\\", "offered": True})
    data = text.encode("utf-8")
    found = parse_watch_file(data, "set.toml")
    assert found.offered
    assert found.watchpoints == tuple(dataclasses.replace(w, id=n) for n, w in enumerate(watchpoints, 1))
    assert len(TOML.loads(data.decode("utf-8")).get("watchpoint", ())) == len(watchpoints), "it is TOML for others too"


def test_a_file_reads_like_the_command_line() -> None:
    made = watchpoints_from([r"TL abs_mean_gt=0.001 @ re=attn\..*weight", "TO"])
    text = format_watch_file([made[0], dataclasses.replace(made[1], enabled=False, name="all")])
    assert text.splitlines()[1:] == [
        "format = 1",
        "",
        "[[watchpoint]]",
        r"watch = 'TL abs_mean_gt=0.001 @ attn\..*weight'",
        "",
        "[[watchpoint]]",
        'watch = "TO"',
        'name = "all"',
        "enabled = false",
    ]


def test_texts_come_before_files_and_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "set.toml"
    path.write_text("# mine\n[[watchpoint]]\nwatch = 'TZ'\nenabled = false\n[[watchpoint]]\nwatch = 'GE'\n")
    found = watchpoints_from(["WO", "TO"], [path, path])
    assert [w.condition for w in found[:4]] == [
        "weight_overflow",
        "tensor_overflow",
        "tensor_all_zero",
        "gradient_exploding",
    ]
    assert [w.enabled for w in found] == [True, True, False, True, False, True]


def test_a_file_with_the_mark_of_windows_editors_is_read(tmp_path: Path) -> None:
    path = tmp_path / "set.toml"
    path.write_bytes(b"\xef\xbb\xbf[[watchpoint]]\r\nwatch = 'TO'\r\n")
    assert [w.condition for w in read_watch_file(path)] == ["tensor_overflow"]


MISTAKES = {
    "watch = 'TO'": "unknown key 'watch'",
    "watchpoints = []": "unknown key 'watchpoints'",
    "[watchpoint]\nwatch = 'TO'": "watchpoint must be written as",
    "[[watchpoint]]": "no watch text",
    "watchpoint = [1]": "an entry must be a table",
    "[[watchpoint]]\nwatch = 5": "watch must be a text",
    "[[watchpoint]]\nwatch = 'TO'\nenabled = 'no'": "enabled must be true or false",
    "[[watchpoint]]\nwatch = 'TO'\nname = 1": "name must be a text",
    "[[watchpoint]]\nwatch = 'TO'\nenable = false": "unknown key 'enable'",
    "[[watchpoint]]\nwatch = 'XX'": "no condition is called 'XX'",
    "[[watchpoint]]\nwatch = 'TL max_gt=x'": "finite number",
    "[[watchpoint]]\nwatch = 'TO @ ['": "regular expression",
    "[[watchpoint]]\nwatch = 'TO @ a\\x'\nescaped = true": "backslash stands alone",
    "[[watchpoint]]\nwatch = 'TO": "no TOML",
    "a = " + "[" * 5000: "no TOML",
    "format = 2": "format 2",
    "format = true": "format must be a whole number",
    "offered = 1": "offered must be true or false",
}


@pytest.mark.parametrize(("text", "part"), MISTAKES.items())
def test_a_mistake_is_named_with_its_place_and_what_to_do(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "set.toml"
    path.write_text(text)
    with pytest.raises(BadWatchpointError, match=part) as caught:
        read_watch_file(path)
    assert caught.value.where.startswith(str(path))
    assert caught.value.hint


def test_a_mistake_in_an_entry_names_the_entry_and_its_text(tmp_path: Path) -> None:
    path = tmp_path / "set.toml"
    path.write_text("[[watchpoint]]\nwatch = 'TO'\n[[watchpoint]]\nwatch = 'TL max_gt=1 foo=2'\n")
    with pytest.raises(BadWatchpointError) as caught:
        read_watch_file(path)
    assert caught.value.where == f"{path}, watchpoint 2: TL max_gt=1 foo=2"


@pytest.mark.parametrize("there", ["nothing", "a directory", "bytes"])
def test_what_is_no_text_file_is_an_error(tmp_path: Path, there: str) -> None:
    path = tmp_path / "set.toml"
    if there == "a directory":
        path.mkdir()
    elif there == "bytes":
        path.write_bytes(b"\xff")
    with pytest.raises(BadWatchpointError) as caught:
        read_watch_file(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_a_wrong_text_is_named() -> None:
    with pytest.raises(BadWatchpointError, match="name=value") as caught:
        watchpoints_from(["TO", "TL max_gt"])
    assert caught.value.where == "--watch: TL max_gt"


def test_a_file_is_never_overwritten_and_never_written_into_the_dump(tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", steps=[0]).root
    before = snapshot(root)
    set_ = watchpoints_from(["TO"])
    assert write_watch_file(set_, tmp_path / "set.toml", root) == tmp_path / "set.toml"
    for path, part in [
        (tmp_path / "set.toml", "exists"),
        (root / "set.toml", "never written"),
        (root / "rank_0" / ".." / "set.toml", "never written"),
        (tmp_path / "none" / "set.toml", "could not be written"),
    ]:
        with pytest.raises(TdbgError, match=part):
            write_watch_file(set_, path, root)
    assert snapshot(root) == before
    assert [w.condition for w in read_watch_file(tmp_path / "set.toml")] == ["tensor_overflow"]


def test_a_name_that_is_no_utf8_survives_as_the_bytes_it_is(tmp_path: Path) -> None:
    node = os.fsdecode(b"Default/caf\xe9/Add-op1")
    path = write_watch_file([named(node)], tmp_path / "set.toml", tmp_path / "dump")
    (found,) = read_watch_file(path)
    assert os.fsencode(found.selection.include[0].text) == b"Default/caf\xe9/Add-op1"
