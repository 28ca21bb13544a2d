"""Options of ``tdbg check``: where watchpoints come from, every mistake, and help that says what the parser takes."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.checking import check
from tests.sources.writer import MLP
from tui_debugger.cli.main import build_parser, main
from tui_debugger.session.watchpoints import WatchpointList, WatchpointStore, watchpoints_from, write_watch_file

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

RELU = MLP.nodes[1].name


def watch_file(tmp_path: Path, *entries: str) -> str:
    path = tmp_path / "ci.toml"
    path.write_text("\n".join(f"[[watchpoint]]\n{entry}" for entry in entries))
    return str(path)


def texts(capsys: Capsys, path: Path, *arguments: str) -> list[str]:
    """The watchpoints that a check used."""
    return [each["text"] for each in check(capsys, path, "--json", *arguments).json["watchpoints"]]


# -- where watchpoints come from -------------------------------------------------------------------


def test_texts_and_files_add_up_and_a_rule_is_used_once(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    file = watch_file(tmp_path, "watch = 'TZ'", "watch = 'TO'")
    assert texts(capsys, dump, "--watch", "TO", "--watch-file", file, "--watch", "WO") == [
        "TO",
        "WO",
        "TZ zero_percentage_ge=100",
    ]


def test_recommended_adds_to_what_was_given(capsys: Capsys, dump: Path) -> None:
    alone = texts(capsys, dump, "--recommended")
    assert texts(capsys, dump) == alone
    assert texts(capsys, dump, "--recommended", "--watch", "TL max_gt=9") == ["TL max_gt=9", *alone]
    assert "recommended ones" not in check(capsys, dump, "--recommended").out


def test_a_given_watchpoint_must_match_also_beside_the_recommended_ones(capsys: Capsys, dump: Path) -> None:
    recommended = check(capsys, dump, "--recommended", "--fail-on", "TO")
    given = check(capsys, dump, "--recommended", "--fail-on", "TO", "--watch", "GE")
    assert (recommended.code, given.code) == (0, 2)
    assert given.last == "cannot judge: GE looked at no tensor (--allow-unmatched accepts that)"


def test_disabled_entries_are_left_out_and_said_so(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    file = watch_file(tmp_path, "watch = 'TL max_gt=-9'\nenabled = false", "watch = 'TO'\nname = 'all'")
    answer = check(capsys, dump, "--watch-file", file)
    assert (answer.code, answer.last) == (0, "clean")
    assert answer.err == "tdbg: 1 disabled watchpoint left out\n"
    both = check(capsys, dump, "--watch-file", file, "--watch", "TL max_gt=-9")
    assert both.code == 1, "what is disabled in a file does not disable the same rule elsewhere"


def test_a_file_the_screen_wrote_runs_in_ci(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    file = write_watch_file(watchpoints_from([f"TL max_gt=-9 @ node={RELU}", "TO"]), tmp_path / "ci.toml", dump)
    answer = check(capsys, dump, "--watch-file", str(file))
    assert answer.last == "FINDINGS: 6 tensors at steps 0-2 of ranks 0,1"


def test_the_state_that_the_screen_keeps_is_a_watchpoint_file(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    store = WatchpointStore(str(dump), tmp_path / "state")
    WatchpointList(store).add_missing(watchpoints_from(["TO"]))
    answer = check(capsys, dump, "--watch-file", str(store.path))
    assert (answer.code, answer.last) == (0, "clean")


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what", "where"),
    [
        (["--watch", "TL max_gt"], "'max_gt' is not name=value", "--watch: TL max_gt"),
        (["--watch", "TO @ ["], "not a regular expression", "--watch: TO @ ["),
        (["--watch", "TL"], "tensor_too_large needs at least one value", "--watch: TL"),
        (["--watch-file", "/nowhere.toml"], "the watchpoint file cannot be read: No such file", "/nowhere.toml"),
        (["--fail-on", "TO,XX"], "no condition is called 'XX'", "--fail-on TO,XX"),
        (["--fail-on", "TO,"], "no condition is called ''", "--fail-on TO,"),
        (["--watch", "TO", "--fail-on", "TZ,WO,TO"], "no watchpoint has the condition TZ, WO", "--fail-on TZ,WO,TO"),
        (["--rank", "7"], "rank 7 is not in this dump", ""),
        (["--step", "5-9"], "step 5-9 is not in this dump", ""),
        (["--filter", "nosuch"], "no node matches", "--filter nosuch"),
        (["--filter", "("], "not a regular expression", ""),
        (["--graph", "9"], "no graph is called '9'", ""),
    ],
)
def test_a_mistake_says_what_where_and_what_to_do(
    capsys: Capsys, dump: Path, arguments: list[str], what: str, where: str
) -> None:
    answer = check(capsys, dump, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"tdbg: {what}")
    assert f"  where: {where}" in answer.err or not where
    assert "  do:    " in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--limit", "-1"], "--limit"),
        (["--limit", "all"], "'all' is not a number of rows"),
        (["--step", "x"], "'x' is not a list of numbers"),
        (["--step", "3-1"], "'3-1' is not a list of numbers"),
        (["--nosuch"], "--nosuch"),
        (["--watch"], "--watch"),
    ],
)
def test_a_wrong_argument_exits_2_with_usage(capsys: Capsys, dump: Path, arguments: list[str], what: str) -> None:
    answer = check(capsys, dump, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("usage: tdbg ")
    assert what in answer.err


def test_a_broken_file_names_the_entry(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    file = watch_file(tmp_path, "watch = 'TO'", "watch = 'TO'\nenable = true")
    answer = check(capsys, dump, "--watch-file", file)
    assert answer.code == 2
    assert answer.err.splitlines()[:2] == ["tdbg: unknown key 'enable'", f"  where: {file}, watchpoint 2"]


@pytest.mark.parametrize(
    ("entries", "what"),
    [([], "the file holds no watchpoint"), (["watch = 'TO'\nenabled = false"], "every given watchpoint is disabled")],
)
def test_files_without_a_watchpoint_are_a_mistake_not_a_clean_check(
    capsys: Capsys, dump: Path, tmp_path: Path, entries: list[str], what: str
) -> None:
    file = watch_file(tmp_path, *entries)
    answer = check(capsys, dump, "--watch-file", file)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"tdbg: {what}")
    beside = check(capsys, dump, "--watch-file", file, "--recommended", "--fail-on", "TO")
    assert beside.code == (0 if entries else 2), "a file that lost its rules is noticed, a disabled rule is a wish"


@pytest.mark.parametrize("make", ["nothing", "a directory", "a file"])
def test_what_is_no_dump_cannot_be_judged(capsys: Capsys, tmp_path: Path, make: str) -> None:
    path = tmp_path / "there"
    if make == "a directory":
        path.mkdir()
    elif make == "a file":
        path.write_text("")
    answer = check(capsys, path)
    assert (answer.code, answer.out) == (2, "")
    assert str(path) in answer.err


# -- help, documentation and parser agree ----------------------------------------------------------


def parser_of(name: str) -> argparse.ArgumentParser:
    return build_parser().commands[name]


def test_every_option_is_in_the_help(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["check", "-h", "all"])
    help_text = capsys.readouterr().out
    options = {text for action in parser_of("check")._actions for text in action.option_strings}
    assert options == {
        *(
            "-h",
            "--help",
            "--watch",
            "--watch-file",
            "--recommended",
            "--fail-on",
            "--redirect-to",
            "--allow-unreadable",
        ),
        *("--allow-unmatched", "--limit", "--rank", "--step", "--filter", "--graph", "--json"),
        *("--jobs", "--executor", "--no-cache", "--no-config", "--ignore"),
        "--no-default-ignore",
    }
    for action in parser_of("check")._actions:
        assert action.help
        assert all(text in help_text for text in action.option_strings)
    for code in ("0    clean", "1    a finding", "2    cannot judge", "130  interrupted"):
        assert code in help_text
    assert all(len(line) <= 80 for line in help_text.splitlines())


def test_the_examples_of_the_help_are_commands(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    file = watch_file(tmp_path, "watch = 'TO'", "watch = 'TZ'")
    dump = dumps("mindspore-2.0-nan")
    here = {"DUMP": str(dump), "ci.toml": file}
    lines = [line for line in (parser_of("check").epilog or "").splitlines() if line.startswith("  tdbg check")]
    for line in lines:
        tdbg, *arguments = [here.get(word, word) for word in shlex.split(line)]
        assert tdbg == "tdbg"
        assert main(arguments) == 1
        assert "FINDINGS" in capsys.readouterr().out or "--json" in arguments
    assert len(lines) == 3


@pytest.mark.parametrize("command", ["open", "demo"])
def test_the_screen_takes_watchpoint_files_too(capsys: Capsys, dump: Path, tmp_path: Path, command: str) -> None:
    where = [str(dump)] if command == "open" else []
    assert main([command, *where, "--watch-file", watch_file(tmp_path, "watch = 'XX'")]) == 2
    assert "watchpoint 1: XX" in capsys.readouterr().err


def test_the_screen_opens_with_the_watchpoints_of_files(dump: Path, tmp_path: Path) -> None:
    from tui_debugger.cli import open_
    from tui_debugger.config import Config
    from tui_debugger.model import no_progress

    file = watch_file(tmp_path, "watch = 'TZ'", "watch = 'TO'\nenabled = false")
    arguments = build_parser().parse_args(["open", str(dump), "--watch", "WO", "--watch-file", file])
    session = open_.opener(dump, arguments, open_.given_watchpoints(arguments), Config())(no_progress)
    assert [(w.condition, w.enabled) for w in session.watchpoints.items()] == [
        ("weight_overflow", True),
        ("tensor_all_zero", True),
        ("tensor_overflow", False),
    ]
