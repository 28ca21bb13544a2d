"""Text of others is made safe by one rule and written by one writer; nothing else in the program writes."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.traceback import Traceback

from tests.hostile import ATTACKS, EVIL, EVIL_FILE, unsafe
from tests.program_files import modules
from tui_debugger.session import Session
from tui_debugger.text import writer
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.text.documents import SCHEMA, document, document_line, document_of_rows, to_json
from tui_debugger.tui.app import TdbgApp

# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_shown_not_done(attack: str) -> None:
    shown = clean(f"a{attack}b")
    assert not unsafe(shown)
    assert shown.isprintable()
    assert shown.startswith("a")
    assert shown.endswith("b")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;x\x07", r"\x1b]52;c;x\x07"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b31m", r"\u009b31m"),
        ("\u202egnp", r"\u202egnp"),
        ("\U000e0041", r"\U000e0041"),
        ("\u061c\u180e\ufff9\u2028", r"\u061c\u180e\ufff9\u2028"),
        ("byte \udcff", r"byte \xff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_is_unsafe_is_a_visible_escape(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize("text", ["", "Default/Log-op1", "é漢字 Ж 😀 μ ∈ ░█ ⠿ ◆ – …", "\ue0b0 (a font's own)", "café"])
def test_everything_else_stays(text: str) -> None:
    assert clean(text) == text


@given(st.text())
def test_any_text_is_safe_and_cleaning_twice_is_cleaning_once(text: str) -> None:
    shown = clean(text)
    assert clean(shown) == shown
    visible = {"Cc", "Cs", "Zl", "Zp"}
    assert not [char for char in shown if unicodedata.category(char) in visible]
    assert "\n".join(map(clean, text.replace("\t", "    ").split("\n"))) == clean_lines(text)


def test_no_format_character_is_left_but_those_that_are_seen() -> None:
    """Arabic and Kaithi number signs and the like are drawn; so are the controls of hieroglyphs."""
    left = [
        chr(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) == "Cf" and clean(chr(code)) == chr(code)
    ]
    seen = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN")
    assert [unicodedata.name(char) for char in left if not unicodedata.name(char).startswith(seen)] == []


# -- the writer ------------------------------------------------------------------------------------


def test_a_line_is_a_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    writer.write_lines(f"node {EVIL}", "second")
    writer.write_errors(f"path {EVIL_FILE}")
    out, err = capsys.readouterr()
    assert out.count("\n") == 2
    assert err.count("\n") == 1
    assert not unsafe(out + err)


def test_colours_that_are_meant_stay_and_nothing_else_does(capsys: pytest.CaptureFixture[str]) -> None:
    writer.write_colored(f"\x1b[38;5;9m{ATTACKS['OSC 52']}\x1b[2J\x1b[0m")
    assert capsys.readouterr().out == "\x1b[38;5;9m\\x1b]52;c;aGFjaw==\\x07\\x1b[2J\x1b[0m\n"


class Screen(io.StringIO):
    """A terminal, as far as the writer can tell."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "colored"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "linux"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, False),
    ],
)
def test_what_has_a_meaning_is_coloured_on_a_terminal_that_wants_colours(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], colored: bool
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    writer.write_lines(("3  ", writer.meant("NaN 1 of 2", writer.Meaning.FINDING), "  x"), "plain")
    assert screen.getvalue() == (
        "3  \x1b[1;38;5;214mNaN 1 of 2\x1b[0m  x\nplain\n" if colored else "3  NaN 1 of 2  x\nplain\n"
    )


def test_a_name_with_a_meaning_is_made_safe_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write_lines(writer.meant(EVIL, writer.Meaning.DOUBT))
    assert capsys.readouterr().out == clean(EVIL) + "\n"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    writer.write_lines(writer.meant(EVIL, writer.Meaning.DOUBT))
    assert screen.getvalue() == f"\x1b[38;5;214m{clean(EVIL)}\x1b[0m\n"


@pytest.mark.parametrize(("given", "columns"), [("60", 60), ("", 80), ("0", 80), ("x", 80), ("99999999", 80)])
def test_the_environment_tells_how_wide_a_terminal_is(
    monkeypatch: pytest.MonkeyPatch, given: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    terminal = writer.terminal_of(Screen())
    assert terminal is not None
    assert terminal.columns == columns
    assert writer.terminal_of(io.StringIO()) is None


def test_a_traceback_is_made_safe(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError(EVIL)
    except RuntimeError:
        writer.write_traceback()
    text = capsys.readouterr().err
    assert "RuntimeError: " in text
    assert "aGFjaw==" in text
    assert not unsafe_within_lines(text)


def unsafe_within_lines(text: str) -> list[str]:
    """A traceback has the line breaks of its message."""
    return [each for line in text.split("\n") for each in unsafe(f" {line}")]


def test_the_line_of_progress_shows_a_name_without_doing_what_it_says() -> None:
    stream = io.StringIO()
    line = writer.StatusLine(stream, lambda: 40)
    line.show(f"reading {EVIL}")
    line.wipe()
    drawn = stream.getvalue()
    assert drawn.count("\r\x1b[K") == 2
    text = drawn.replace("\r\x1b[K", "")
    assert len(text) == 39
    assert not unsafe(text)


def test_what_is_said_meanwhile_takes_the_place_of_the_line_of_progress(capsys: pytest.CaptureFixture[str]) -> None:
    line = writer.StatusLine(sys.stderr, lambda: 40)
    line.show("12 %")
    writer.write_errors("tdbg: nothing says of which step it is")
    line.show("13 %")
    line.wipe()
    writer.write_errors("tdbg: done")
    drawn = capsys.readouterr().err
    assert [each.rpartition("\r\x1b[K")[2] for each in drawn.split("\n")[:-1]] == [
        "tdbg: nothing says of which step it is",
        "tdbg: done",
    ]


def test_a_traceback_of_a_thread_and_a_log_line_are_made_safe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", None)
    monkeypatch.setattr(threading, "excepthook", None)
    writer.guard_logs()

    def fail() -> None:
        raise RuntimeError(EVIL)

    thread = threading.Thread(target=fail, name=f"worker{EVIL}")
    thread.start()
    thread.join()
    assert logging.lastResort is not None
    logging.lastResort.emit(logging.makeLogRecord({"msg": f"peer {EVIL}", "levelno": logging.ERROR}))
    text = capsys.readouterr().err
    assert text.count("aGFjaw==") == 3
    assert not unsafe_within_lines(text)


async def test_a_crash_of_the_screen_shows_names_without_doing_what_they_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def open_session(_progress: object) -> Session:
        raise AssertionError

    app = TdbgApp(open_session)
    app.error_console.print(Traceback.from_exception(RuntimeError, RuntimeError(EVIL), None))
    text = capsys.readouterr().err
    assert "aGFjaw==" in text
    assert not unsafe_within_lines(text)


# -- documents -------------------------------------------------------------------------------------


def test_a_document_begins_with_its_version_and_is_ascii_and_exact() -> None:
    content = {
        "node": EVIL_FILE,
        "values": [1.5, float("nan"), float("-inf")],
        "number": np.int64(7),
        "half": np.float32(0.5),
    }
    for text in ("".join(document(content)), document_line(content)):
        assert text.isascii()
        assert text.endswith("\n")
        assert not unsafe(text)
        found = json.loads(text)
        assert list(found) == ["schema", *content]
        assert found == {"schema": SCHEMA, **content, "values": [1.5, "nan", "-inf"]}


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inside: st.lists(inside) | st.dictionaries(st.text("[]{}\n\t\0,: \ud800x"), inside),
        ),
    )
)
def test_a_document_is_laid_out_as_the_encoder_of_python_does_it(content: dict[str, Any]) -> None:
    expected = json.dumps({"schema": SCHEMA, **content}, indent=1).replace("\x7f", "\\u007f") + "\n"
    assert "".join(document(content)) == expected
    made_one_by_one = {key: iter(value) if isinstance(value, list) else value for key, value in content.items()}
    assert "".join(document(made_one_by_one)) == expected


def test_numbers_that_json_has_no_word_for_are_texts_at_any_depth() -> None:
    values = [{"a": (float("nan"), np.float32("inf"))}, float("-inf"), 2**80]
    for given_as in (values, iter(values)):
        assert json.loads("".join(document({"values": given_as})))["values"] == [{"a": ["nan", "inf"]}, "-inf", 2**80]


def test_a_document_written_row_by_row_is_one_document() -> None:
    rows = [{"name": EVIL}, {"name": "b", "value": np.float32("inf")}]
    text = "".join(document_of_rows({"command": "stat"}, "tensors", rows, lambda: {"exit_code": 0}))
    assert json.loads(text) == {
        "schema": SCHEMA,
        "command": "stat",
        "tensors": [{"name": EVIL}, {"name": "b", "value": "inf"}],
        "exit_code": 0,
    }
    assert json.loads("".join(document_of_rows({"path": "x"}, "nodes", []))) == {
        "schema": SCHEMA,
        "path": "x",
        "nodes": [],
    }


def test_what_has_no_place_in_a_document_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="object has no place"):
        to_json({"what": object()})


# -- nothing else writes ---------------------------------------------------------------------------

WRITES = {
    "text/writer.py": "the writer",
    "cli/start.py": "one constant line, when nothing is imported yet",
    "cli/help.py": "a console that captures what it prints",
    "stats/kernel/build.py": "a tool for builders, which runs before anything is installed",
}
"""Files that may write to stdout or stderr, and why."""
CONSOLES = {
    "tui/app.py": "writes the traceback of a crash into the writer's stream",
    "tui/widgets/text.py": "turns Rich texts into segments; writes nothing",
    "cli/show_report.py": "asks which colours the terminal has; writes nothing",
    "cli/help.py": "renders a page into a text, which the writer writes",
}
"""Files that may make a Rich console, and why."""
ENCODES = {
    "text/documents.py": "the encoder",
    "cache/blocks.py": "a block of the disk cache, which nobody but the cache reads",
    "diagnose/runs/distance.py": "a distance in the disk cache, which nobody but its reader reads",
    "torch/node_calls.py": "an attribute of a node in the graph that a training sends",
    "said.py": "a file beside the steps of a saved dump, for the reader of dumps",
    "notes.py": "a file beside the steps of a dump, for the reader of dumps",
    "live/dump_writer.py": "metadata files of a dump, as MindSpore writes them",
    "sources/tensor_files/converted_nodes.py": "a file beside the steps of a converted dump, for its reader",
}
"""Files that may write JSON, and why."""
WRITES_CSV = {
    "text/spreadsheets.py": "the tables for people",
    "live/dump_writer.py": "statistic.csv of a dump, as MindSpore writes it",
    "session/convert.py": "the index of a converted dump, which its reader reads back name by name",
}
"""Files that may write .csv, and why."""


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@cache
def called() -> dict[str, list[str]]:
    """What every module calls."""
    return {name: list(calls(module)) for name, module in modules().items()}


def found_in(wanted: tuple[str, ...], allowed: dict[str, str]) -> tuple[list[str], list[str]]:
    """Calls outside of the allowed files, and allowed files without any."""
    found, used = [], set()
    for name, made in called().items():
        for call in made:
            if call in wanted or any(call.endswith(f".{each}") for each in wanted):
                used.add(name)
                found += [] if name in allowed else [f"{name}: {call}"]
    return found, sorted(set(allowed) - used)


def test_only_the_writer_writes_to_the_terminal() -> None:
    streams = ("stdout", "stderr", "__stdout__", "__stderr__")
    writes = [f"{stream}.{method}" for stream in streams for method in ("write", "writelines", "buffer.write")]
    others = ("traceback.print_exc", "traceback.print_exception", "traceback.print_stack", "rich.print")
    assert found_in(("print", "pprint", "print_exc", *writes, *others), WRITES) == ([], [])


def test_only_the_writer_is_handed_a_stream() -> None:
    """``json.dump(x, sys.stdout)``, ``csv.writer(sys.stdout)``, ``print(file=...)``, ``Thing(sys.stderr)``."""
    may = {
        "text/writer.py",
        "cli/main.py",
        "cli/output.py",
        "cli/show_report.py",
        "cli/start.py",
    }  # they ask it something, or hand it on; the last one see WRITES
    found = []
    for name, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and name not in may:
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                found += [name for each in given if ast.unparse(each) in ("sys.stdout", "sys.stderr")]
    assert found == []


def test_consoles_of_rich_write_nothing() -> None:
    assert found_in(("Console",), CONSOLES) == ([], [])


def test_nothing_of_the_user_goes_through_markup() -> None:
    assert found_in(("from_markup", "render_markup", "Content.from_markup", "Text.from_markup"), {}) == ([], [])


def test_only_one_place_makes_json() -> None:
    assert found_in(("json.dumps", "json.dump", "JSONEncoder"), ENCODES) == ([], [])


def test_only_one_place_makes_tables_for_spreadsheets() -> None:
    assert found_in(("csv.writer", "csv.DictWriter"), WRITES_CSV) == ([], [])
