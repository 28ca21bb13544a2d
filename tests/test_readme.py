"""README and its pages say what the program does: tables, commands, links, pictures are checked against the code."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.json_page import TEXT, assert_described, described, keys, sections
from tests.readme_blocks import BLOCKS, FILES, README
from tui_debugger.cli.help import PAGES, TOPICS
from tui_debugger.cli.main import COMMANDS, FINDING_COMMANDS, build_parser
from tui_debugger.text.documents import SCHEMA
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.watch.text import parse_watch

ROOT = README.parent
TEXTS = {file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in FILES}
ONE_OF_TEXTS = pytest.mark.parametrize("name", TEXTS)


@pytest.mark.parametrize("name", BLOCKS)
def test_tables_are_those_of_the_registries(name: str) -> None:
    assert BLOCKS[name].written(name) == BLOCKS[name].make(), "run: python -m tests.readme_blocks"


def test_the_first_page_is_short() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 140


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = TEXTS["README.md"].splitlines()
    (command,) = [line for line in lines if line.startswith("python3 -m venv") and "pytest" in line]
    script = (ROOT / ".ci" / "run").read_text("utf-8").replace('"$python"', "python3")
    assert command in script.splitlines()


# -- links and pictures ----------------------------------------------------------------------------


def links(name: str) -> list[tuple[str, Path]]:
    """The links of a page to files: text and target."""
    found = re.findall(r"\[([^\]]*)\]\((?![a-z]+://)([^)]+)\)", TEXTS[name])
    return [(text, (ROOT / name).parent / target) for text, target in found]


@ONE_OF_TEXTS
def test_every_link_leads_to_a_file(name: str) -> None:
    assert [text for text, target in links(name) if not target.is_file()] == []


@ONE_OF_TEXTS
def test_a_link_to_a_page_says_which_topic_it_is(name: str) -> None:
    for text, target in links(name):
        if target.resolve().parent == PAGES:
            assert text == f"`tdbg help {target.stem}`"


@ONE_OF_TEXTS
def test_every_topic_that_is_named_is_there(name: str) -> None:
    named = re.findall(r"`tdbg help ([a-z-]+)`", TEXTS[name])
    assert set(named) <= {*TOPICS, *COMMANDS}


def test_every_picture_is_shown() -> None:
    shown = {target.resolve() for name in TEXTS for _, target in links(name) if target.suffix == ".svg"}
    assert shown == set((ROOT / "screenshots").glob("*.svg"))


# -- commands and code -----------------------------------------------------------------------------


def fences(language: str) -> Iterator[str]:
    """Every fenced block of a language in README and its pages."""
    for text in TEXTS.values():
        yield from re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def command_lines() -> list[str]:
    """Every line of a shell block that starts tdbg; what is broken by a backslash is one line."""
    lines = [line for block in fences("sh") for line in re.sub(r"\\\n *", "", block).splitlines()]
    return [line for line in lines if line.startswith("tdbg ")]


def test_the_page_of_commands_names_each_of_them_and_those_that_find_something() -> None:
    page = TEXTS["tui_debugger/docs/commands.md"]
    table = page[: page.index("\n\nPATH is ")]
    assert set(COMMANDS) == set(re.findall(r"^\| `tdbg ([a-z][a-z-]*)", table, re.MULTILINE))
    (found,) = re.findall(r"^- \*\*1\*\*: (.*?)(?=^- )", page, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([^`]*)`", found)) == set(FINDING_COMMANDS)


def test_the_page_of_the_screen_names_every_view() -> None:
    keys_of_views = re.findall(r"^\| `(.)` \| [^|:]*:", TEXTS["tui_debugger/docs/screen.md"], re.MULTILINE)
    assert {view.usual_key for view in VIEWS} <= set(keys_of_views)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_is_understood(line: str) -> None:
    command = re.split(r" [|>] ", line)[0]
    words = shlex.split(command, comments=True)[1:]
    arguments = build_parser().parse_args(words)
    assert callable(arguments.run)
    for text in getattr(arguments, "watch", []):
        assert parse_watch(text)


@pytest.mark.parametrize("code", list(fences("python")))
def test_every_piece_of_python_is_python(code: str) -> None:
    ast.parse(code)


# -- JSON documents --------------------------------------------------------------------------------

DOCUMENTS = {
    "check": ["check", "PATH"],
    "audit": ["audit", "PATH"],
    "origin": ["origin", "PATH"],
    "origin --from NODE": ["origin", "PATH", "--from", "moment2.head.bias"],
    "relations": ["relations", "PATH", "Log-op381", "--hops", "2", "--watch", "TO"],
    "explain": ["explain", "PATH", "Log-op381"],
    "report": ["report", "PATH"],
    "health": ["health", "PATH"],
    "ranks": ["ranks", "PATH"],
    "trend": ["trend", "PATH", "Div-op385"],
    "trend without NODE": ["trend", "PATH"],
    "ls": ["ls", "PATH", "--files", "--stack"],
    "show": ["show", "PATH", "Div-op385:0"],
    "show --distribution": ["show", "PATH", "Div-op385:0", "--distribution"],
    "show --heat": ["show", "PATH", "Div-op385:0", "--heat"],
    "diff": ["diff", "PATH", "head.weight", "--with", "step=0"],
    "stat": ["stat", "PATH"],
    "export": ["export", "PATH", "tensors", "-o", "OUT.npz"],
    "export hits": ["export", "PATH", "hits", "-o", "OUT.json"],
    "export graph": ["export", "PATH", "graph", "-o", "OUT.csv"],
    "convert": ["convert", "PATH", "-o", "OUT.d"],
    "ls --formats": ["ls", "--formats"],
    "ls --formats PATH": ["ls", "PATH", "--formats"],
    "ls --steps": ["ls", "PATH", "--steps"],
    "config --cache": ["config", "--cache"],
    "config": ["config"],
    "config --init": ["config", "--init"],
    "dump-config": ["dump-config", "--yes", "--path", "/d", "-o", "OUT.json", "--parameters", "7B"],
    "dump-config --check": ["dump-config", "--check", "PATH/rank_0/.dump_metadata/data_dump.json"],
    "config --cache clear": ["config", "--cache", "clear"],
}
"""A command line for every kind of document, by the heading of its section or what begins with it."""


@pytest.fixture(scope="module")
def demo(dumps: Callable[[str], Path]) -> Path:
    return dumps("mindspore-2.0-nan")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_key_of_a_document_is_described(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path, name: str
) -> None:
    named = {"PATH": str(demo), **{f"OUT{end}": str(tmp_path / f"out{end}") for end in (".npz", ".json", ".csv", ".d")}}
    document = run(
        capsys, *(named.get(word, word.replace("PATH/", f"{demo}/")) for word in DOCUMENTS[name]), "--json"
    ).json
    section = next(head for head in (name, name.rpartition(" ")[0], name.split(maxsplit=1)[0]) if head in sections())
    assert_described(document, section)


def test_the_file_of_exported_hits_is_described(capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path) -> None:
    run(capsys, "export", demo, "hits", "-o", tmp_path / "x.json")
    document = json.loads((tmp_path / "x.json").read_text("utf-8"))
    assert document["schema"] == SCHEMA
    assert keys(document) <= described(TEXT)


def test_every_command_with_documents_has_a_section() -> None:
    parsers = build_parser().commands
    with_documents = {name for name, parser in parsers.items() if "--json" in parser._option_string_actions}
    assert with_documents == {name for name in sections() if name in COMMANDS}, "describe it in docs/json.md"
    tried = {name.partition(" ")[0] for name in DOCUMENTS}
    assert with_documents - tried == {"listen"}, "give it a command line in DOCUMENTS"


def test_the_page_names_the_version_of_the_schema() -> None:
    assert f"`schema` is the version of these documents: **{SCHEMA}**" in TEXT
