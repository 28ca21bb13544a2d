"""What holds for every headless command: documents, errors, names that can be copied, what is seen first."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.every import COMMANDS, OTHERS, words
from tests.cli.running import run
from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, write_dump, write_step
from tui_debugger.cli.main import EPILOG, FINDING_COMMANDS, build_parser
from tui_debugger.signals import ENDING
from tui_debugger.sources.registry import open_source

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

NAN = "mindspore-2.0-nan"
RELU = MLP.nodes[1].name


def test_every_command_about_a_dump_is_among_them() -> None:
    about_dumps = {
        name
        for name, parser in build_parser().commands.items()
        if {"path", "json"} <= {action.dest for action in parser._actions}
    }
    assert about_dumps - OTHERS == {words.partition(" ")[0] for words in COMMANDS}, (
        "add a command line to tests/cli/every.py"
    )


# -- documents -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_a_document_says_schema_command_path_and_exit_code(capsys: Capsys, dump: Path, command: str) -> None:
    answer = run(capsys, *words(command, dump, "--json"))
    assert list(answer.json)[:3] == ["schema", "command", "path"]
    assert answer.json["schema"] == 1
    assert (answer.json["command"], answer.json["path"]) == (command.split(maxsplit=1)[0], str(dump))
    assert answer.json["exit_code"] == answer.code
    assert answer.err == ""
    if command != "stat":  # which has a line for each tensor
        assert answer.out == json.dumps(answer.json, indent=1) + "\n"


@pytest.mark.covering
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--rank", "7"), "rank 7 is not in this dump"),
        (("--graph", "nosuch"), "no graph is called 'nosuch'"),
        (("--filter", "nosuch"), "no node matches"),
        (("--filter", "("), "not a regular expression"),
    ],
)
def test_a_mistake_is_a_document_too(
    capsys: Capsys, dump: Path, command: str, more: tuple[str, ...], what: str
) -> None:
    answer = run(capsys, *words(command, dump, *more, "--json"))
    found = answer.json
    assert (found["command"], found["path"], found["exit_code"], answer.code) == (
        command.split(maxsplit=1)[0],
        str(dump),
        2,
        2,
    )
    assert found["error"]["what"].startswith(what)
    assert all(found["error"][part] for part in ("what", "where", "hint")), "what, where, what to do"
    assert what in answer.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_without_a_dump_is_a_document_too(capsys: Capsys, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    answer = run(capsys, *words(command, tmp_path / "empty", "--json"))
    assert (answer.code, answer.json["exit_code"]) == (2, 2)
    assert "No dump found" in answer.json["error"]["what"]


@pytest.mark.covering
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("more", "what"), [(("--step", "x"), "'x' is not a list of numbers"), (("--nosuch",), "unrecognized arguments")]
)
def test_a_wrong_argument_is_a_document_too(
    capsys: Capsys, dump: Path, command: str, more: tuple[str, ...], what: str
) -> None:
    answer = run(capsys, *words(command, dump, *more, "--json"))
    assert (answer.code, answer.json["exit_code"], answer.json["command"]) == (2, 2, command.split(maxsplit=1)[0])
    assert what in answer.json["error"]["what"]
    assert what in answer.err
    plain = run(capsys, *words(command, dump, *more))
    assert (plain.code, plain.out) == (2, "")


def test_an_option_of_others_is_named_with_the_commands_that_have_it(capsys: Capsys, dump: Path) -> None:
    said = run(capsys, "ls", dump, "--jobs", "2")
    assert said.code == 2
    assert "--jobs is an option of open, check" in said.err
    assert "`tdbg ls -h all`" in said.err


def test_an_export_says_that_the_path_comes_first(capsys: Capsys, dump: Path) -> None:
    said = run(capsys, "export", "graph", dump, "-o", "x.csv")
    assert said.code == 2
    assert "PATH comes first: tdbg export DUMP graph" in said.err


def test_the_help_names_every_command_whose_exit_code_1_is_a_finding() -> None:
    """Said where one looks first, and true: it is what the commands say of themselves."""
    finding = [
        name
        for name, parser in build_parser().commands.items()
        if re.search(r"^  1 {3,}|exit codes: as of tdbg check", parser.format_help(), re.MULTILINE)
    ]
    assert sorted(finding) == sorted({name.partition(" ")[0] for name in FINDING_COMMANDS})
    assert all(re.search(rf"\b{name}\b", EPILOG) for name in FINDING_COMMANDS)


@pytest.mark.covering
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, "signal"])
def test_ctrl_c_while_opening_is_130_and_a_document(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, dump: Path, command: str, kind: Any
) -> None:
    def pressed(*_: object) -> None:
        if kind != "signal":
            raise kind
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("tui_debugger.session.session.open_source", pressed)
    answer = run(capsys, *words(command, dump, "--json"))
    assert (answer.code, answer.json["exit_code"]) == (130, 130)
    assert "Traceback" not in answer.err


@pytest.mark.covering
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", ENDING[:3])
def test_a_signal_ends_a_command_as_ctrl_c_does_with_its_own_exit_code(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, dump: Path, command: str, number: int
) -> None:
    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr("tui_debugger.session.session.open_source", lambda *_, **__: os.kill(os.getpid(), number))
        answer = run(capsys, *words(command, dump, "--json"))
    assert (answer.code, answer.json["exit_code"]) == (128 + number, 128 + number)
    assert "Traceback" not in answer.err
    assert signal.getsignal(number) is before
    assert run(capsys, *words(command, dump, "--rank", "7", "--json")).code == 2, "the next one is not ended"


def test_what_nohup_ignores_stays_ignored(capsys: Capsys, monkeypatch: pytest.MonkeyPatch, dump: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def hung_up(*given: Any, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGHUP)
        return open_source(*given, **named)

    monkeypatch.setattr("tui_debugger.session.session.open_source", hung_up)
    try:
        assert run(capsys, "ls", dump).code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_cannot_command_the_terminal(capsys: Capsys, tmp_path: Path, command: str) -> None:
    answer = run(capsys, *words(command, tmp_path / "a\x1b[31m"))
    assert answer.code == 2
    assert "\x1b" not in answer.err
    assert "a\\x1b[31m" in answer.err


@pytest.mark.parametrize("words", [("show",), ("diff",), ("relations",), ("explain",), ("origin", "--from")])
def test_a_slot_that_a_node_does_not_have_names_those_that_it_has(
    capsys: Capsys, dump: Path, words: tuple[str, ...]
) -> None:
    command, *option = words
    error = run(capsys, command, dump, *option, "ReLU-op2:7", "--json").json["error"]
    assert error == {"what": "this node has no tensor out 7", "where": RELU, "hint": "it has in:0, out:0"}


# -- names go from one command to the next ---------------------------------------------------------


def test_a_hit_can_be_pasted_into_show(capsys: Capsys, dumps: Dumps) -> None:
    rows = run(capsys, "check", dumps(NAN), "--watch", "TO", "--limit", "5").lines[1:6]
    for row in rows:
        found = re.search(r"(NaN|-Inf) (\d+) of (\d+) +(\S+)$", row)
        assert found is not None
        (tensor,) = run(capsys, "show", dumps(NAN), found[4], "--step", row.split()[0], "--json").json["tensors"]
        bad = {"NaN": tensor["stats"]["nan"], "-Inf": tensor["stats"]["neg_inf"]}[found[1]]
        assert (bad, tensor["stats"]["count"]) == (int(found[2]), int(found[3]))


def test_the_side_of_a_hit_is_pasted_with_it(capsys: Capsys, dump: Path) -> None:
    path = next(dump.glob("rank_1/Net/0/2/ReLU*input*"))
    np.save(path, np.array([[np.nan, 7, 8]], np.float32))
    (row,) = [line for line in run(capsys, "check", dump, "--watch", "TO").lines if "NaN 1" in line]
    place = row.split()[-1]
    assert place == f"{RELU}:in:0"
    (tensor,) = run(capsys, "show", dump, place, "--rank", "1", "--json").json["tensors"]
    assert (tensor["role"], tensor["stats"]["nan"], tensor["stats"]["max"]) == ("in", 1, 8)


@pytest.mark.parametrize("slot", ["in:0", "out:0", "out", "in0"])
def test_a_slot_may_stand_apart_from_the_name(capsys: Capsys, dump: Path, slot: str) -> None:
    apart = run(capsys, "show", dump, RELU, slot, "--rank", "0")
    assert apart.code == 0
    assert apart.out == run(capsys, "show", dump, f"{RELU}:{slot}", "--rank", "0").out


@pytest.mark.parametrize("slice_", ["0", "1:2", ":"])
def test_a_slice_without_brackets_is_no_slot(capsys: Capsys, dumps: Dumps, slice_: str) -> None:
    (values,) = dumps(NAN).glob("rank_0/*/0/3/Log.Log-op381.*.output.0.*")
    (tensor,) = run(capsys, "show", dumps(NAN), "Log-op381:0", slice_, "--step", "3", "--json").json["tensors"]
    start, stop = {"0": (0, 1), "1:2": (1, 2), ":": (0, 4)}[slice_]
    expected = [float(each) if np.isfinite(each) else "-inf" for each in np.load(values)[start:stop]]
    assert (tensor["values"] if isinstance(tensor["values"], list) else [tensor["values"]]) == expected


def test_rows_of_stat_can_be_pasted_into_show(capsys: Capsys, dump: Path) -> None:
    lines = run(capsys, "stat", dump, "--step", "1", "--rank", "0").lines
    places = [line.split()[-1] for line in lines[1:-2]]
    assert len(places) == 11
    for place in places:
        assert len(run(capsys, "show", dump, place, "--step", "1", "--rank", "0", "--json").json["tensors"]) == 1


def test_with_several_graphs_a_name_says_which(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=[0])
    other = Graph(nodes=(Node(RELU, "ReLU", (("x", 0),)),), parameters=("x",), id=1, root=1)
    writer.graph(other)
    write_step(writer, 1, other)
    path = next(tmp_path.glob("rank_0/Net/1/1/ReLU*output*"))
    np.save(path, np.array([np.inf], np.float32))
    (row,) = [line for line in run(capsys, "check", tmp_path, "--watch", "TO").lines if "Inf 1" in line]
    place = row.split()[-1]
    assert place == f"kernel_graph1/{RELU}:out:0"
    (tensor,) = run(capsys, "show", tmp_path, place, "--json").json["tensors"]
    assert tensor["stats"]["pos_inf"] == 1
    assert place in run(capsys, "stat", tmp_path, "--step", "1").out


@pytest.mark.parametrize(
    "name", ["a[0](x)|y", "esc\x1b[31mred", "new\nline", "x" * 180, "inv\udcff\udcfelid", "sp ace", "col:on", "é漢字"]
)
def test_a_name_as_it_is_printed_finds_its_node(capsys: Capsys, tmp_path: Path, name: str) -> None:
    step = DumpWriter(tmp_path, Generation.V2_10).step(0)
    file = os.fsencode(step / f"Add.{name}.0.0.100.output.0.DefaultFormat.Float32.npy")
    with open(file, "wb") as out:  # noqa: PTH123 - a path of bytes
        np.save(out, np.array([1, np.nan], np.float32))
    (row,) = [line for line in run(capsys, "check", tmp_path, "--watch", "TO").lines if "NaN 1" in line]
    place = row[row.index("of 2") + 4 :].strip()
    assert place.isprintable()
    for text in (place, place.removesuffix(":out:0")):
        assert run(capsys, "show", tmp_path, text, "--json").json["node"] == name
    listed = run(capsys, "ls", tmp_path).lines[1]
    assert listed.endswith(place.removesuffix(":out:0"))


# -- what is seen first ----------------------------------------------------------------------------


def test_origins_stand_next_to_the_verdict_when_the_table_is_long(capsys: Capsys, dumps: Dumps) -> None:
    lines = run(capsys, "check", dumps(NAN)).lines
    assert lines[-5:-1] == [
        "origin ◆ at step 3: -Inf 1 of 4",
        "  Default/network-WithLossCell/_backbone-Net/Log-op381:out:0",
        "origin ◆ at step 3: NaN 128 of 512",
        "  Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385:out:0",
    ]


def test_without_an_origin_it_is_the_first_finding(capsys: Capsys, dump: Path) -> None:
    lines = run(capsys, "check", dump, "--watch", "TL max_gt=-9 @ type=ReLU", "--limit", "2").lines
    assert re.fullmatch(r"first finding at step 0 rank 0: max > -9 → .*", lines[-3])
    assert lines[-2] == f"  {RELU}:out:0"
    few = run(capsys, "check", dump, "--watch", "TL max_gt=-9 @ type=ReLU", "--step", "0", "--rank", "0").lines
    assert not any("first finding" in line for line in few), "a short table is read at a glance"


def test_what_the_steps_share_leaves_room_for_nan_on_a_narrow_screen(capsys: Capsys, dumps: Dumps) -> None:
    lines = run(capsys, "show", dumps(NAN), "Div-op385:0", "--step", "0-5").lines
    assert lines[2] == "float32 4×8×16 n=512"
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.endswith("NaN! 128")] == ["3"]


def test_the_same_thing_has_the_same_title(capsys: Capsys, dump: Path) -> None:
    of_show = run(capsys, "show", dump, RELU, "--stat").lines
    (head,) = [line for line in of_show if line.startswith("slot")]
    of_stat = run(capsys, "stat", dump).lines[0]
    shared = [title for title in re.split(r" {2,}", head) if title not in ("slot", "step", "neg", "pos", "rank")]
    assert shared == [title for title in re.split(r" {2,}", of_stat) if title not in ("step", "rank", "tensor")]


@pytest.mark.parametrize("command", ["ls", "stat"])
def test_categories_are_given_in_one_way(capsys: Capsys, dump: Path, command: str) -> None:
    once = run(capsys, command, dump, "--category", "weight,activation")
    assert once.code == 0
    assert once.out == run(capsys, command, dump, "--category", "activation", "--category", "weight").out
    wrong = run(capsys, command, dump, "--category", "weight,wieght")
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, "tdbg: no category is called 'wieght'")


# -- nothing is clean that was not judged ----------------------------------------------------------


def test_hits_of_a_watchpoint_that_looked_at_nothing_are_not_exported(capsys: Capsys, dump: Path) -> None:
    answer = run(capsys, *words("export", dump, "--watch", "TO @ nosuch"))
    assert answer.code == 2
    assert answer.err.startswith("tdbg: no tensor was looked at")
    assert not dump.with_name("out.csv").exists()


def test_an_empty_file_beside_a_good_one_is_noticed(capsys: Capsys, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text("[[watchpoint]]\nwatch = 'TO'\n")
    (tmp_path / "empty.toml").touch()
    both = ["--watch-file", str(tmp_path / "good.toml"), "--watch-file", str(tmp_path / "empty.toml")]
    answer = run(capsys, "check", dump, *both)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[:2] == [
        "tdbg: the file holds no watchpoint",
        f"  where: {tmp_path / 'empty.toml'}",
    ]


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("check", ("--watch", "TO", "--step", "1-99"), "step 3-99 is not in this dump: looking at step 1,2"),
        ("stat", ("--rank", "0-7"), "rank 2-7 is not in this dump: looking at rank 0,1"),
        ("check", ("--watch", "TO", "--step", "0-2", "--rank", "0,1"), ""),
    ],
)
def test_a_span_that_is_partly_there_is_said(
    capsys: Capsys, dump: Path, command: str, more: tuple[str, ...], said: str
) -> None:
    answer = run(capsys, *words(command, dump, *more, "--json"))
    assert answer.code == 0
    assert answer.err == (f"tdbg: {said}\n" if said else "")
    assert answer.json["exit_code"] == 0


def test_a_step_that_one_rank_lacks_is_said(capsys: Capsys, dump: Path) -> None:
    """Rank and step that are both named have to be there together."""
    (lacking,) = (each for each in dump.glob("rank_1/*/0/2") if each.is_dir())
    for file in lacking.iterdir():
        file.unlink()
    lacking.rmdir()
    check = words("check", dump, "--watch", "TO", "--step", "2")
    named = run(capsys, *check, "--rank", "0,1")
    assert (named.code, named.out) == (2, "")
    assert named.err.splitlines()[:2] == ["tdbg: rank 1 has no step 2", "  where: --rank 1 --step 2"]
    others = run(capsys, *check)
    assert others.code == 0
    assert "tdbg: step 2 is not in this dump for rank 1: looking at the other ranks\n" in others.err


def test_nodes_known_from_file_names_alone_are_said_to_be_so(capsys: Capsys, dump: Path) -> None:
    for path in dump.rglob("*.pb"):
        path.unlink()
    answer = run(capsys, "ls", dump)
    assert answer.code == 0
    assert "ranks 0,1 have no graph: nodes come from file names" in answer.err
