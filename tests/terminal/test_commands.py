"""Commands in a real terminal: what they print fits, has colours that mean something, and says first what came out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from wcwidth import wcswidth

from tests.benchmarks.ranks import write_ranks
from tests.terminal.program import Program

Dumps = Callable[[str], Path]

NAN, GRAPHS = "mindspore-2.0-nan", "mindspore-2.0-multi-eval"
COLOR = re.compile("\x1b\\[[0-9;]*m")
FINDING, CLEAN = "\x1b[1;38;5;214m", "\x1b[1;38;5;75m"
LINES = (
    ("check",),
    ("origin",),
    ("origin", "--from", "head.weight", "--step", "5"),
    ("health", "--nodes", "--bad"),
    ("stat", "--filter", "Log-op", "--step", "3"),
    ("ls", "--filter", "Log-op", "--stack", "--files"),
    ("ls", "--steps"),
    ("show", "Div-op385", "--step", "0-5"),
    ("show", "Div-op385:0", "--step", "3"),
    ("show", "Div-op385", "--stat"),
    ("show", "Div-op385:0", "--distribution"),
    ("show", "Div-op385:0", "--heat"),
    ("diff", "Div-op385:0", "--top", "3"),
    ("trend", "head.weight", "Log-op381:0"),
    ("relations", "Div-op385", "--hops", "2", "--watch", "TO"),
    ("relations", "head.weight", "--sketch", "--watch", "TO"),
)


PROGRAM = """\
import sys
from tui_debugger.cli.main import main
for line in sys.argv[1:]:
    code = main(line.split("\\t"))
    print(f"\\a{code}", flush=True)
"""


def on_terminal(columns: int, *lines: Sequence[object], env: Mapping[str, str] | None = None) -> list[tuple[int, str]]:
    """Exit code and output of commands that one process runs in a terminal, one after the other."""
    words = ["\t".join(map(str, line)) for line in lines]
    with Program(["-c", PROGRAM, *words], columns=columns, env=env) as program:
        out = bytearray()
        while (part := program.read(0.05)) or program.process.poll() is None:
            out += part
        assert program.wait_exit() == 0, out.decode()
    found = re.findall(r"(.*?)\a(\d+)\n", out.decode().replace("\r\n", "\n"), re.DOTALL)
    assert len(found) == len(lines)
    return [(int(code), text) for text, code in found]


def piped(*arguments: object, env: Mapping[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "tui_debugger", *map(str, arguments)]
    variables = {**os.environ, **(env or {})}
    return subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=False).stdout.decode()


def results(text: str) -> list[str]:
    """The lines of a terminal without colours, and without what the progress bar drew and wiped away."""
    return [line.rpartition("\x1b[K")[2].strip("\r") for line in COLOR.sub("", text).split("\n")]


def of_nan(dumps: Dumps, line: tuple[str, ...]) -> list[object]:
    return [line[0], dumps(NAN), *line[1:]]


@pytest.mark.turns("columns")
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_no_line_of_any_command_is_wider_than_the_terminal(dumps: Dumps, columns: int) -> None:
    others = [(command, dumps(GRAPHS)) for command in ("check", "origin", "health", "ranks")]
    others.append(("ls", dumps(GRAPHS), "--steps"))
    ranks = dumps("msprobe-mix-2rank-mb-md5")
    others += [("ranks", ranks, "--nodes"), ("ranks", ranks, "--stat", "norm"), ("audit", ranks), ("config",)]
    for line, (code, text) in zip(
        [*LINES, *others], on_terminal(columns, *(of_nan(dumps, line) for line in LINES), *others), strict=True
    ):
        assert code in (0, 1, 2)
        assert [row for row in results(text) if wcswidth(row) > columns] == [], line


def test_numbers_of_ranks_are_shown_where_the_terminal_has_room_for_them(tmp_path: Path) -> None:
    line = ("ranks", write_ranks(tmp_path / "dump", 8, 25, 1), "--stat", "norm")
    ((_, narrow),) = on_terminal(60, line)
    ((_, wide),) = on_terminal(200, line)
    assert max(map(wcswidth, results(narrow))) <= 60
    assert any(row.startswith("off the median of the ranks by:") for row in results(narrow))
    assert any(re.match(r"( +rank \d){8}  norm at step 0", row) for row in results(wide))


def test_notices_do_not_stand_beside_the_bar(dumps: Dumps) -> None:
    ((_, text),) = on_terminal(80, ("audit", dumps("msprobe-mix-2rank-mb-md5")))
    said = [row for row in results(text) if "tdbg: " in row]
    assert said
    assert all(row.startswith("tdbg: ") for row in said)


def test_nan_is_seen_however_narrow_the_terminal_is(dumps: Dumps) -> None:
    lines = ("show", dumps(NAN), "head.weight", "--step", "0-5"), ("show", dumps(NAN), "Div-op385", "--step", "0-5")
    for (_, text), seen in zip(
        on_terminal(40, *lines), ([("3", "64"), ("4", "64"), ("5", "64")], [("3", "128")]), strict=True
    ):
        rows = [row for row in results(text) if "NaN!" in row]
        assert [(row.replace("out:0", "").split()[0], row.split()[-1]) for row in rows] == seen
    ((_, stat),) = on_terminal(40, ("stat", dumps(NAN), "--filter", "Div-op385$", "--step", "3", "--side", "out"))
    assert "128" in stat


def test_columns_of_the_environment_go_before_the_terminal_s_own(dumps: Dumps) -> None:
    ((_, text),) = on_terminal(200, ("check", dumps(NAN)), env={"COLUMNS": "60"})
    assert max(map(wcswidth, results(text))) <= 60


def test_a_narrow_check_keeps_operators_and_names_the_columns_that_it_leaves_out(dumps: Dumps) -> None:
    line = ("check", dumps(NAN), "--watch", "TO")
    ((_, text),) = on_terminal(80, line)
    rows = [row.split() for row in results(text) if ":out:" in row and row.lstrip().startswith("3 ")]
    whole = re.findall(r"(\S+:out:\d+)$", piped(*line), re.MULTILINE)
    assert len(rows) == 20
    assert [row[-1].rpartition("/")[2] for row in rows] == [name.rpartition("/")[2] for name in whole[:20]]
    ((_, narrow),) = on_terminal(40, line)
    assert "more columns: watch, found" in " ".join(results(narrow))


@pytest.mark.turns("columns")
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_whoever_judges_says_the_answer_once_and_the_exit_code_last(dumps: Dumps, columns: int) -> None:
    said = {
        ("check",): ("FINDINGS: NaN or Inf in 910 tensors", "exit code 1: a finding"),
        ("origin",): ("FOUND: 2 independent origins", "exit code 1: a finding"),
        ("health",): ("FINDINGS: 2,292 tensors checked", "exit code 1: a finding"),
        ("explain", "Log-op381"): ("FINDINGS: on 1 of 1 tensor", "exit code 1: a finding, explained"),
        ("diff", "Div-op385:0"): ("different: 512 of 512", "exit code 1: different"),
        ("stat", "--step", "3"): ("950 tensors", "exit code 0: every tensor"),
        ("origin", "--from", "head.weight"): ("origin: Div-op385 (Div), step 3", "exit code 1: a finding"),
        ("check", "--step", "0-2", "--watch", "TO"): ("clean", "exit code 0: clean"),
    }
    answers = on_terminal(columns, *(of_nan(dumps, line) for line in said))
    for line, (_, text) in zip(said, answers, strict=True):
        (words, code), rows = said[line], [row for row in results(text) if row]
        assert len([row for row in rows if row.startswith(words)]) == 1, line
        assert [row.startswith("exit code") for row in rows] == [False] * (len(rows) - 1) + [True], line
        assert rows[-1].startswith(code), line


def test_colours_tell_findings_origins_and_what_is_clean(dumps: Dumps) -> None:
    lines = ("check", dumps(NAN)), ("health", dumps(NAN)), ("check", dumps(NAN), "--step", "0-2", "--watch", "TO")
    (_, check), (_, map_), (code, clean) = on_terminal(120, *lines)
    assert f"{FINDING}FINDINGS" in check
    assert f"{FINDING}◆" in check
    assert f"{FINDING}NaN 128 of 512" in check
    assert f"{FINDING}◆" in map_
    assert f"{FINDING}N" in map_
    assert (code, f"{CLEAN}clean\x1b[0m" in clean, FINDING in clean) == (0, True, False)


@pytest.mark.turns("columns")
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_words_of_a_legend_have_no_colour(dumps: Dumps, columns: int) -> None:
    for _, text in on_terminal(columns, ("health", dumps(NAN)), ("ranks", dumps(NAN))):
        (legend,) = [row for row in text.split("\n") if "cannot judge" in row and "origin" in row]
        assert re.search(f"{re.escape(FINDING)}N\x1b\\[0m NaN", legend)


def test_a_sketch_is_drawn_with_what_the_terminal_has(dumps: Dumps) -> None:
    line = ("relations", dumps(NAN), "Log-op381", "--step", "3", "--sketch")
    ((_, plain),) = on_terminal(80, line, env={"PYTHONIOENCODING": "ascii"})
    ((_, drawn),) = on_terminal(80, line)
    assert "\n".join(results(plain)).isascii()
    assert any("->#0 Log-op381#" in row for row in results(plain))
    assert any("▶║0 Log-op381╟" in row for row in results(drawn))
    assert max(map(wcswidth, results(drawn))) <= 80


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_who_wants_no_colours_gets_none_and_the_same_words(dumps: Dumps, env: dict[str, str]) -> None:
    ((_, text),) = on_terminal(100, ("check", dumps(NAN)), env=env)
    ((_, colored),) = on_terminal(100, ("check", dumps(NAN)))
    assert not COLOR.search(text)
    assert COLOR.search(colored)
    assert [line for line in results(text) if line] == [line for line in results(colored) if line]


def test_a_pipe_gets_everything_whole_plain_and_once(dumps: Dumps) -> None:
    line = ("check", dumps(NAN), "--watch", "TO")
    out = piped(*line, env={"COLUMNS": "40"})
    assert out == piped(*line, env={"TERM": "xterm", "COLUMNS": "200"})
    assert "\x1b" not in out
    assert not [name for name in re.findall(r"\S+-op\d+:out:\d+", out) if "…" in name]
    assert max(map(len, out.splitlines())) > 80
    assert out.count("FINDINGS") == 1
    assert "exit code" not in out


def test_a_command_that_is_advised_can_be_pasted_from_a_narrow_terminal(dumps: Dumps) -> None:
    line = ("explain", dumps(NAN), "Log-op381")
    ((_, text),) = on_terminal(60, line)
    whole = re.search(r"^ +(tdbg show .*)", piped(*line), re.MULTILINE)
    advised = re.search(r"^ +(tdbg show (?:.*\\\n)*.*)", "\n".join(results(text)), re.MULTILINE)
    assert whole is not None
    assert advised is not None
    assert "\\\n" in advised[1]
    assert shlex.split(advised[1].replace("\\\n", "")) == shlex.split(whole[1])


def test_an_error_is_broken_between_words_and_its_path_stays_whole(tmp_path: Path) -> None:
    place = tmp_path / ("a" * 70)
    place.mkdir()
    ((code, text),) = on_terminal(80, ("check", place))
    what, advice = results(text)[0], text[text.index("  do:    ") :].rstrip("\n").split("\n")
    assert (code, what[:20]) == (2, "tdbg: No dump found ")
    assert f"  where: {place}\n" in text
    assert len(advice) == 2
    assert all(wcswidth(line) <= 80 for line in advice)
    assert advice[1].startswith(" " * len("  do:    ") + "configuration")
