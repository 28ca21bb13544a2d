"""``tdbg convert``: the result opens again, with the same nodes, values and findings."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import thorough
from tests.cli.running import run
from tests.sources.arrays import write_arrays, write_safetensors
from tests.sources.test_logs import mutated
from tests.sources.test_tensor_files import parts
from tests.sources.writer import DumpWriter, statistic_row, write_dump, write_step
from tui_debugger.cli.main import main
from tui_debugger.errors import CancelledError
from tui_debugger.graph.table import NodeFlag, NodeTable, real_inputs
from tui_debugger.model import Progress, Side
from tui_debugger.notes import NOTES_FILE, notes_line
from tui_debugger.session.convert import convert
from tui_debugger.session.session import Session
from tui_debugger.sources import open_source
from tui_debugger.sources.registry import STATISTICS_ONLY
from tui_debugger.sources.tensor_files.converted import COLUMNS, NAME
from tui_debugger.sources.tensor_files.converted_nodes import NAME as NODES
from tui_debugger.stats.npy import open_array, read_meta

Capsys = pytest.CaptureFixture[str]
WATCHES = ("TO", "TZ @ category=tensor", "TL max_gt=2", "WNC", "WCL")


@contextmanager
def session_on(path: Path) -> Iterator[Session]:
    session = Session(open_source(path))
    try:
        session.open()
        yield session
    finally:
        session.close()


def converted(path: Path, target: Path) -> Path:
    with session_on(path) as session:
        convert(session, session.pairs(), target)
    return target


WATCH_WORDS = tuple(word for watch in WATCHES for word in ("--watch", watch))


def tensors(path: Path, *, graph: bool = True) -> list[tuple[Any, ...]]:
    """Every tensor of a dump in its order: its place, its category, its bytes or its statistics."""
    found: list[tuple[Any, ...]] = []
    with session_on(path) as session:
        for rank, step in session.pairs():
            table, nodes = session.source.tensors(rank, step), session.nodes(rank)
            for index in range(len(table)):
                row = int(table.node[index])
                name = (nodes.graph_of(row).name if graph else "", nodes.names[row], nodes.paths[row])
                kind = (nodes.op_type(row), nodes.category_of(row))
                place = (Side(int(table.side[index])), int(table.slot[index]), int(table.round[index]))
                if session.flow(rank).has_values(table, index):
                    values = open_array(table.spec(index))
                    wide = values.astype(np.float32) if values.dtype.isbuiltin == 2 else values
                    said: Any = (wide.dtype.name, wide.shape, wide.tobytes())
                else:
                    said = (table.recorded_meta(index), str(table.recorded(index)))
                found.append((rank, step, *name, *kind, *place, said))
    return found


def findings(path: Path) -> list[str]:
    out = io.StringIO()
    with redirect_stdout(out):
        main(["check", str(path), *WATCH_WORDS, "--json", "--no-cache", "--jobs", "1"])
    document = json.loads(out.getvalue())
    return [document["verdict"], *(json.dumps(hit, sort_keys=True) for hit in document["hits"])]


VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, 3.5, -2.0, np.nan, np.inf, -np.inf]), max_size=4)
DTYPES = st.sampled_from(["float32", "float64", "float16"])
NAMES = st.sampled_from(
    ["fc.weight", "fc.bias", "a.in.0", "a.out.1", "grads/fc.weight", "exp_avg.fc.weight"]
) | st.text("abz./_ é\n%", min_size=1, max_size=8)
STEPS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 12)),
    st.dictionaries(NAMES, st.tuples(VALUES, DTYPES), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@thorough.examples(80)
@given(dump=STEPS)
def test_what_was_converted_is_the_same_dump(
    tmp_path_factory: pytest.TempPathFactory, dump: dict[tuple[int, int], dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for (rank, step), arrays in dump.items():
        (folder / f"dump/rank_{rank}/step_{step}").mkdir(parents=True)
        values = {name: np.array(numbers, dtype) for name, (numbers, dtype) in arrays.items()}
        write_safetensors(folder / f"dump/rank_{rank}/step_{step}/some.safetensors", values)
    result = converted(folder / "dump", folder / "result")
    assert tensors(result) == tensors(folder / "dump")
    assert findings(result) == findings(folder / "dump")
    assert parts(open_source(result)) == {}
    shutil.rmtree(folder)


WITH_EDGES = ("mindspore-2.10-mlp", "msprobe-mix/nan", "mindspore-2.0-nan", "torchtitan-numerics/bad")
REAL = (
    *("mindspore-2.10-multi-gan", "mindspore-2.10-mlp", "mindspore-2.0-multi-eval", "mindspore-2.10-multi-flow"),
    *("mindspore-2.10-multi-order", "mindspore-2.0-nan"),
    *("msprobe-L1-nan", "msprobe-L0-slice", "msprobe-mix-2rank-mb-md5", "msprobe-mindspore", "msprobe-debug-save"),
    *("msprobe-monitor/v1", "msprobe-monitor/v2", "msprobe-monitor/dump-db", "msprobe-xor", "msprobe-mix/nan"),
    *("sglang-megatron/sglang-2rank", "sglang-megatron/sglang-pass", "sglang-megatron/megatron-tp2/bad"),
    *("pytorch-debugmode/good", "pytorch-debugmode/bad", "torchtitan-numerics/good", "te-logs"),
)
SETTLING = ("msprobe-L1-nan", "msprobe-mix/nan", "msprobe-monitor/dump-db")
"""A later step speaks against edges of an earlier one: that is judged by those that are known by then. The converted
dump has what is known in the end, so that other copies of one tensor are looked at."""
Dumps = Callable[[str], Path]


def place(dumps: Dumps, name: str) -> Path:
    archive, _, below = name.partition("/")
    return dumps(archive) / below


@pytest.mark.parametrize("name", thorough.few(REAL, 3))
def test_a_check_and_the_search_for_origins_say_the_same(
    capsys: Capsys, dumps: Dumps, tmp_path: Path, name: str
) -> None:
    dump = place(dumps, name)
    result = converted(dump, tmp_path / "result")
    for command, *words in (("check", "--limit", "0", *WATCH_WORDS), ("origin",)):
        before, after = (run(capsys, command, path, *words, "--json", "--no-cache") for path in (dump, result))
        assert after.code == before.code
        keys = ("verdict", "origins", "first_known", "limits", *(() if name in SETTLING else ("hits", "by_design")))
        for key in keys:
            assert plain(after.json.get(key)) == plain(before.json.get(key)), (command, key)


def plain(value: Any) -> Any:
    """An answer without what the stored width of bfloat16 decides."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != "nbytes"}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", thorough.few(WITH_EDGES, 2))
def test_every_node_keeps_what_it_was_made_from(capsys: Capsys, dumps: Dumps, tmp_path: Path, name: str) -> None:
    dump = place(dumps, name)
    result = converted(dump, tmp_path / "result")
    with session_on(dump) as one, session_on(result) as other:
        for pair in one.pairs():
            one.source.tensors(*pair)
        before, after = one.nodes(0), other.nodes(0)
        found = {(after.graph_of(row).name, after.names[row]): row for row in range(len(after))}
        rows = [(row, found.pop((before.graph_of(row).name, before.names[row]), -1)) for row in range(len(before))]
        assert not found
        for old, new in rows:
            if new < 0:
                assert before.flags[old] & NodeFlag.FILE_ONLY, "a node of the graph is gone"
                continue
            assert made_from(before, old) == made_from(after, new)
            assert before.stack(old) == after.stack(new)
            assert (before.paths[old], before.outputs[old]) == (after.paths[new], after.outputs[new])
            assert (before.category_of(old), before.flags[old]) == (after.category_of(new), after.flags[new])
            assert before.constants.get(old) == after.constants.get(new)
        assert list(one.source.history(0)) == list(other.source.history(0))
        assert list(one.source.steps(0)) == list(other.source.steps(0))
    for origin in run(capsys, "origin", dump, "--json").json["origins"][:1]:
        words = (origin["node"], "--step", origin["step"], "--json")
        told = [{**run(capsys, "relations", path, *words).json, "path": ""} for path in (dump, result)]
        assert told[0] == told[1]


def made_from(nodes: NodeTable, row: int) -> list[tuple[str, int] | None]:
    return [(nodes.names[made], slot) if made >= 0 else None for made, slot in nodes.inputs(row)]


def test_a_dump_with_a_graph_keeps_nodes_order_and_values(dumps: Dumps, tmp_path: Path) -> None:
    dump = dumps("mindspore-2.0-nan")
    assert tensors(converted(dump, tmp_path / "result")) == tensors(dump)


def test_of_some_steps_the_run_before_is_the_newest_of_those(dumps: Dumps, tmp_path: Path) -> None:
    with session_on(dumps("mindspore-2.10-multi-gan")) as session:
        convert(session, [pair for pair in session.pairs() if pair[1] in {1, 3}], tmp_path / "result")
        assert session.source.previous_run(0, 0, 3) == (2, 0)
    with session_on(tmp_path / "result") as session:
        assert list(session.source.steps(0)) == [1, 3]
        assert session.source.previous_run(0, 0, 3) == (1, 2), "step 1 holds two runs of that graph"
        assert {run.step for run in session.source.history(0) if run.has_data} == {1, 3}


def test_notes_are_kept(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", steps=(0, 1))
    (rank,) = (tmp_path / "dump").glob("rank_0")
    (rank / "notes.jsonl").write_text('{"step": 1, "notes": {"loss": {"float": "nan"}, "lr": 0.5}}\n')
    with session_on(converted(tmp_path / "dump", tmp_path / "result")) as session:
        assert str(session.source.notes(0).all()) == "[(1, {'loss': nan, 'lr': 0.5})]"


def test_the_index_says_where_each_tensor_came_from(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    dump = dumps("mindspore-2.0-nan")
    result = converted(dump, tmp_path / "result")
    with (result / "rank_0/step_3" / NAME).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert tuple(rows[0]) == COLUMNS
    (row,) = [each for each in rows if each["node"].endswith("/Log-op381") and each["side"] == "output"]
    assert np.array_equal(
        np.load(result / "rank_0/step_3" / row["file"]), np.load(dump / row["original"]), equal_nan=True
    )
    assert (row["dtype"], row["type"]) == ("float32", "Log")
    assert row["stack"].endswith("train_nan.py:53") or ".py:" in row["stack"]


def test_tensors_with_statistics_only_are_rows_without_a_file(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    writer.metadata()
    write_step(writer, 0)
    statistics(tmp_path / "dump")
    result = converted(tmp_path / "dump", tmp_path / "result")
    assert not list(result.rglob("*.npy"))
    assert [each[2:] for each in tensors(result)] == [each[2:] for each in tensors(tmp_path / "dump")]
    assert STATISTICS_ONLY in run(capsys, "check", result, "--watch", "TO", "--json").json["limits"]


def statistics(root: Path) -> None:
    """Keeps of each step what a dump of statistics has."""
    for folder in {path.parent for path in root.rglob("*.npy")}:
        rows = []
        for path in sorted(folder.glob("*.npy")):
            op_type, name, task, stream, when, side, slot, *_ = path.name.split(".")
            identity = {"Op Type": op_type, "Op Name": name, "Task ID": task, "Stream ID": stream, "Timestamp": when}
            rows.append({**identity, "IO": side, "Slot": slot, **statistic_row(np.load(path))})
            path.unlink()
        with (folder / "statistic.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_types_that_npy_cannot_name_are_float32_with_the_same_values(
    capsys: Capsys, tmp_path: Path, dtype: Any
) -> None:
    values = np.array([1.5, -0.25, 0, np.nan], np.float32).astype(dtype)
    (tmp_path / "dump/step_0").mkdir(parents=True)
    write_safetensors(tmp_path / "dump/step_0/a.safetensors", {"w": values})
    said = run(capsys, "convert", tmp_path / "dump", "-o", tmp_path / "result", "--json").json
    assert (said["tensors"], said["widened"], said["exit_code"]) == (1, 1, 0)
    (file,) = (tmp_path / "result").rglob("*.npy")
    assert np.array_equal(np.load(file), values.astype(np.float32), equal_nan=True)
    assert tensors(tmp_path / "result") == tensors(tmp_path / "dump")
    with (tmp_path / "result/rank_0/step_0" / NAME).open(newline="") as index:
        assert [row["dtype"] for row in csv.DictReader(index)] == [np.dtype(dtype).name]
    with session_on(tmp_path / "result") as session:
        assert read_meta(session.source.tensors(0, 0).spec(0)).dtype == np.dtype(dtype).name


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    for step in (0, 1):
        write_arrays(
            tmp_path / f"dump/rank_0/step_{step}", {"a.in.0": np.ones(3), "a.out.0": np.zeros(3), "b": np.ones(2)}
        )
        write_arrays(tmp_path / f"dump/rank_1/step_{step}", {"b": np.ones(2)})
    return tmp_path / "dump"


class TestWhatIsWritten:
    def test_filters_choose(self, capsys: Capsys, dump: Path, tmp_path: Path) -> None:
        words = ("--step", "1", "--rank", "0", "--filter", "^a$")
        assert run(capsys, "convert", dump, "-o", tmp_path / "result", *words).code == 0
        files = {str(path.relative_to(tmp_path / "result")) for path in (tmp_path / "result").rglob("*.npy")}
        assert files == {f"rank_0/step_1/arrays/a.{side}.0.npy" for side in ("input", "output")}

    def test_never_over_something_and_never_into_the_dump(self, capsys: Capsys, dump: Path, tmp_path: Path) -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "full/note.txt").write_text("mine")
        assert "not empty" in run(capsys, "convert", dump, "-o", tmp_path / "full").err
        assert "never written to" in run(capsys, "convert", dump, "-o", dump / "result").err
        assert [path.name for path in tmp_path.iterdir() if path.name != "dump"] == ["full"]
        assert (tmp_path / "full/note.txt").read_text() == "mine"
        assert not (dump / "result").exists()

    def test_the_room_on_the_disk_is_looked_at_first(
        self, capsys: Capsys, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = namedtuple("usage", "total used free")  # noqa: PYI024 - what shutil returns
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 100))
        said = run(capsys, "convert", dump, "-o", tmp_path / "result")
        assert said.code == 2
        assert "are needed, 100 B are free" in said.err
        assert [path.name for path in tmp_path.iterdir()] == ["dump"]

    @pytest.mark.parametrize("after", range(8))
    def test_an_interruption_leaves_nothing(self, dump: Path, tmp_path: Path, after: int) -> None:
        told: list[Progress] = []

        def stop(snapshot: Progress) -> None:
            told.append(snapshot)
            if len(told) > after:
                raise CancelledError("interrupted")

        with session_on(dump) as session, pytest.raises(CancelledError):
            convert(session, session.pairs(), tmp_path / "result", stop)
        assert [path.name for path in tmp_path.iterdir()] == ["dump"]

    def test_one_that_cannot_be_read_is_said_and_stays_a_doubt(
        self, capsys: Capsys, dump: Path, tmp_path: Path
    ) -> None:
        (dump / "rank_0/step_1/b.npy").write_bytes(b"no array")
        said = run(capsys, "convert", dump, "-o", tmp_path / "result", "--json")
        assert said.code == 2
        assert [row["node"] for row in said.json["left_out"]] == ["b"]
        assert said.json["tensors"] == 7
        assert [why for why in parts(open_source(tmp_path / "result")).values() if "not converted" in why]
        assert run(capsys, "check", tmp_path / "result", "--watch", "TO").code == 2


def test_a_name_with_nul_is_kept_or_said(capsys: Capsys, tmp_path: Path) -> None:
    """``csv`` of Python 3.10 does not write it."""
    (tmp_path / "dump").mkdir()
    write_safetensors(tmp_path / "dump/model.safetensors", {"a\0b": np.ones(2, "f4")})
    said = run(capsys, "convert", tmp_path / "dump", "-o", tmp_path / "result")
    if sys.version_info < (3, 11):
        assert said.code == 2
        assert "a name with a NUL character cannot be written" in said.err
        assert not (tmp_path / "result").exists()
    else:
        assert said.code == 0
        assert list(open_source(tmp_path / "result").nodes(0).names) == ["a\0b"]


NUL = "<NUL>"
"""Stands for what ``csv`` of Python 3.10 does not write."""


def spoilt(result: Path, change: Callable[[list[list[str]]], None]) -> dict[str, str]:
    index = result / "rank_0/step_0" / NAME
    with index.open(newline="") as file:
        rows = list(csv.reader(file))
    change(rows)
    with index.open("w", newline="") as file:
        csv.writer(file).writerows([cell.replace("\0", NUL) for cell in row] for row in rows)
    index.write_bytes(index.read_bytes().replace(NUL.encode(), b"\0"))
    return parts(open_source(result))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("file", bad) for bad in ("/etc/passwd.npy", "../../../dump/rank_0/step_0/b.npy", "a.txt", "\0.npy")],
        *[("slot", bad) for bad in ("-1", "x", "99999", "1" * 30)],
        *[("round", "70000"), ("side", "up"), ("category", "good"), ("marks", "tall"), ("node", ""), ("shape", "(x)")],
        *[("timestamp", "1e9"), ("timestamp", "9" * 19)],
    ],
)
def test_an_index_that_makes_no_sense_is_one_part_that_cannot_be_read(
    dump: Path, tmp_path: Path, column: str, value: str
) -> None:
    result = converted(dump, tmp_path / "result")

    def change(rows: list[list[str]]) -> None:
        rows[-1][COLUMNS.index(column)] = value

    found = spoilt(result, change)
    assert list(found) == [f"rank_0/step_0/{NAME}"]
    assert next(iter(found.values())).startswith("line 4: ")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: rows.clear(), "line 0: empty"),
        (lambda rows: rows[0].update(version=2), "version 2"),
        (lambda rows: rows[0].update(graphs=[["g", 0, True]] * 2), "two graphs of one name"),
        (lambda rows: rows[-1].update(inputs=[[99, 0]]), "an input that is no node"),
        (lambda rows: rows[-1].update(inputs=[[0, -1]]), "no number"),
        (lambda rows: rows[-1].update(inputs=7), "no line of nodes"),
        (lambda rows: rows[-1].update(graph=1), "no number"),
        (lambda rows: rows[-1].update(category="good"), "no line of nodes"),
        (lambda rows: rows[-1].update(marks=["tall"]), "no line of nodes"),
        (lambda rows: rows[-1].update(stack_of=5), "no number"),
        (lambda rows: rows[-1].update(node=""), "without a name"),
        (lambda rows: rows.append(rows[-1]), "two nodes of one name"),
        (lambda rows: rows.insert(1, {"run": {}}), "no line of nodes"),
        (lambda rows: rows.insert(1, {"at": [0, 0, 0], "before": [0]}), "line 2"),
        (lambda rows: rows.insert(1, {"stack": [["a.py", "1"]]}), "line 2"),
        (lambda rows: rows.append([]), "no line of nodes"),
    ],
)
def test_nodes_that_make_no_sense_are_one_part_that_cannot_be_read(
    dump: Path, tmp_path: Path, change: Callable[[list[Any]], None], why: str
) -> None:
    path = converted(dump, tmp_path / "result") / "rank_0" / NODES
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = parts(open_source(tmp_path / "result"))
    assert list(found) == [f"rank_0/{NODES}"]
    assert why in found[f"rank_0/{NODES}"]
    assert [each[-1] for each in tensors(tmp_path / "result")] == [each[-1] for each in tensors(dump)]


@pytest.mark.parametrize("count", [70, thorough.later(10_000)])
def test_changed_bytes_of_nodes_and_index_never_raise_what_is_no_answer(
    dumps: Dumps, tmp_path: Path, count: int
) -> None:
    result = converted(place(dumps, "pytorch-debugmode/bad"), tmp_path / "result")
    files = [result / "rank_0" / NODES, result / "rank_0/step_3" / NAME]
    whole = [b"".join(path.read_bytes().splitlines(keepends=True)[:60]) for path in files]
    unread = 0
    for number in range(count):
        chance = random.Random(number)  # noqa: S311 - only damage is made of it
        for path, content in zip(files, whole, strict=True):
            path.write_bytes(content)
        files[number % 2].write_bytes(mutated(whole[number % 2], chance))
        source = open_source(result)
        table = source.tensors(0, 3)
        for index in range(len(table)):
            table.recorded(index)
            table.recorded_meta(index)
        nodes = source.nodes(0)
        assert len(table) == 0 or int(table.node.max()) < len(nodes)
        for row in range(len(nodes)):
            real_inputs(nodes, row)
            nodes.stack(row)
        assert (source.history(0), source.previous_run(0, 0, 3), source.info) is not None
        unread += bool(source.unreadable())
    assert unread > count // 3


def test_other_damage_of_an_index(dump: Path, tmp_path: Path) -> None:
    result = converted(dump, tmp_path / "result")
    assert "line 1" in next(iter(spoilt(result, lambda rows: rows[0].append("more")).values()))
    assert main(["check", str(result), "--watch", "TO", "--no-cache"]) == 2


@pytest.mark.parametrize("name", [NODES, NOTES_FILE])
def test_what_was_listed_beside_the_steps_and_is_gone_is_a_doubt(tmp_path: Path, name: str) -> None:
    """It vanishes after the directory was listed, before it is opened; one that never was there is none."""
    noted = tmp_path / "noted"
    write_dump(noted)
    (noted / "rank_0" / NOTES_FILE).write_text(notes_line(0, {"loss": 1.0}), "utf-8")
    result = converted(noted, tmp_path / "result")
    source = open_source(result)
    (result / "rank_0" / name).unlink()
    source.nodes(0)
    assert list(parts(source)) == [f"rank_0/{name}"]
    again = open_source(result)
    again.nodes(0)
    assert not parts(again)


def test_a_step_whose_index_is_gone_is_a_doubt(dump: Path, tmp_path: Path) -> None:
    result = converted(dump, tmp_path / "result")
    steps = sorted((result / "rank_0").glob("step_*"))
    (steps[-1] / NAME).unlink()
    source = open_source(result)
    for step in source.steps(0):
        source.tensors(0, step)
    assert f"rank_0/{steps[-1].name}/{NAME}" in parts(source)


def test_a_converted_dump_converts_again(dump: Path, tmp_path: Path) -> None:
    once = converted(dump, tmp_path / "once")
    assert tensors(converted(once, tmp_path / "twice")) == tensors(once) == tensors(dump)


def test_a_small_dump_with_a_graph(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", steps=(0, 1))
    result = converted(tmp_path / "dump", tmp_path / "result")
    assert sorted(map(str, tensors(result))) == sorted(map(str, tensors(tmp_path / "dump")))
