"""Directories that were listed by an earlier session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, age, write_dump
from tests.thorough import examples
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.mindspore import steps as remembered

BIG = Graph(tuple(Node(f"Default/net-Net/Add-op{number}", "Add", (("x", 0),)) for number in range(120)), ("x",))
"""Enough files to be worth remembering."""


def write_big(root: Path, *, steps: int = 2, graph: bool = True) -> DumpWriter:
    writer = DumpWriter(root, Generation.V2_5)
    if graph:
        writer.graph(BIG)
    for step in range(steps):
        for node in BIG.nodes:
            for at in (("input", 0), ("output", 0)):
                (writer.step(step) / writer.file_name(node.type, node.name, *at)).touch()
    return writer


def everything(source: Source) -> tuple[Any, ...]:
    """All that a source says about its files."""
    found: list[Any] = []
    for step in source.steps(0):
        table = source.tensors(0, step)
        nodes = source.nodes(0)
        keys = [(nodes.names[row], nodes.op_type(row)) for row in table.node.tolist()]
        columns = [c.tolist() for c in (table.side, table.slot, table.flags, table.timestamp)]
        rows = range(len(table))
        found += [keys, columns, [table.spec(i) for i in rows], [table.recorded(i) for i in rows], table.digest]
    return (*found, source.info)


def test_a_directory_that_looks_the_same_is_not_listed_again(
    tmp_path: Path, store: DiskCache, listed: list[str]
) -> None:
    write_big(tmp_path / "dump")
    age(tmp_path / "dump")
    first = everything(open_source(tmp_path / "dump", store))
    assert listed == ["0", "1"]
    assert everything(open_source(tmp_path / "dump", store)) == first
    assert everything(open_source(tmp_path / "dump" / "rank_0" / "Net", DiskCache(store.path)))[:-1] == first[:-1]
    assert listed == ["0", "1"]
    assert everything(open_source(tmp_path / "dump")) == first


def test_a_link_to_a_dump_finds_what_is_known_about_it(tmp_path: Path, store: DiskCache, listed: list[str]) -> None:
    write_big(tmp_path / "dump")
    age(tmp_path / "dump")
    (tmp_path / "link").symlink_to("dump")
    tables = [open_source(tmp_path / name, store).tensors(0, 1) for name in ("dump", "link")]
    assert listed == ["0", "1"]
    assert tables[0].digest == tables[1].digest
    assert tables[1].spec(0).path.startswith(str(tmp_path / "link"))


def odd_dump(root: Path, *, unreadable: bool = False) -> None:
    """Everything a directory can hold beside tensor files; also what nobody can read."""
    writer = write_big(root, graph=False)
    writer.mapped(0, "123", "ReLU.Default--act--ReLU-op7.0.0.5.output.0.DefaultFormat.float32.npy", np.zeros(3))
    for name in ("Add.early.0.0.007.output.0.DefaultFormat.npy", "Add.dev.12.3.5.output.0.NC1HWC0.npy"):
        np.save(writer.step(0) / name, np.zeros(2))
    (writer.step(0) / "notes.txt").touch()
    if unreadable:
        (writer.step(0) / "Opdebug.Node_OpDebug.1.2.3").touch()
    (writer.step(0) / "notes").mkdir()
    twice = writer.file_name("Add", BIG.nodes[3].name, "output", 0)
    (writer.step(0) / twice).touch()
    writer.statistics(0, [("Add", BIG.nodes[0].name, "output", 0, np.ones(3)), ("Sub", "s", "output", 1, np.ones(3))])
    if unreadable:
        (writer.step(0) / "broken.npy").touch()
        (writer.step(0) / "Add.a.0.0.5.output.0.F.npy").mkdir()
        for name in ("mapping.csv", "statistic.csv"):
            with (writer.step(0) / name).open("a") as file:
                file.write("what is this\n")


@pytest.mark.parametrize("unreadable", [False, True])
def test_all_that_a_directory_holds_comes_out_the_same(
    tmp_path: Path, store: DiskCache, listed: list[str], unreadable: bool
) -> None:
    odd_dump(tmp_path / "dump", unreadable=unreadable)
    age(tmp_path / "dump")
    plain = everything(open_source(tmp_path / "dump"))
    assert len(plain[-1].notices) > (6 if unreadable else 4)
    listed.clear()
    assert everything(open_source(tmp_path / "dump", store)) == plain
    assert listed == ["0", "1"]
    assert everything(open_source(tmp_path / "dump", store)) == plain
    assert listed == (["0", "1", "0"] if unreadable else ["0", "1"]), "what cannot be read is looked at every time"


def _new_file(writer: DumpWriter) -> None:
    (writer.step(0) / writer.file_name("Add", "Default/net-Net/Add-op900", "output", 0)).touch()


def _removed_file(writer: DumpWriter) -> None:
    next(writer.step(0).glob("*.npy")).unlink()


def _other_directory(writer: DumpWriter) -> None:
    status = writer.step(0).stat()
    writer.step(0).rename(writer.step(0).with_name("old"))
    shutil.copytree(writer.step(0).with_name("old"), writer.root / "new")
    next((writer.root / "new").glob("*.npy")).unlink()
    writer.step(0).rmdir()
    (writer.root / "new").rename(writer.step(0).with_name("0"))
    os.utime(writer.step(0), ns=(status.st_atime_ns, status.st_mtime_ns))


def _time_put_back(writer: DumpWriter) -> None:
    status = writer.step(0).stat()
    _new_file(writer)
    os.utime(writer.step(0), ns=(status.st_atime_ns, status.st_mtime_ns))


def _statistics_grew(writer: DumpWriter) -> None:
    writer.statistics(0, [("Sub", "t", "output", 0, np.ones(3))])


def _mapping_rewritten(writer: DumpWriter) -> None:
    path = writer.step(0) / "mapping.csv"
    path.write_text(path.read_text().replace("ReLU-op7", "ReLU-op8"))


@pytest.mark.covering
@pytest.mark.parametrize(
    "change",
    [_new_file, _removed_file, _other_directory, _time_put_back, _statistics_grew, _mapping_rewritten],
    ids=lambda change: change.__name__.strip("_"),
)
@pytest.mark.parametrize("young", [False, True])
def test_a_directory_that_changed_is_listed_again(
    tmp_path: Path, store: DiskCache, change: Callable[[DumpWriter], None], *, young: bool
) -> None:
    odd_dump(tmp_path / "dump")
    age(tmp_path / "dump")
    before = everything(open_source(tmp_path / "dump", store))
    writer = DumpWriter(tmp_path / "dump", Generation.V2_5)
    writer.clock += 10**9
    change(writer)
    if not young and change is not _time_put_back:
        age(tmp_path / "dump")
    after = everything(open_source(tmp_path / "dump"))
    assert after != before
    assert everything(open_source(tmp_path / "dump", store)) == after
    assert everything(open_source(tmp_path / "dump", store)) == after


def test_young_directories_are_not_remembered(tmp_path: Path, store: DiskCache, listed: list[str]) -> None:
    write_big(tmp_path / "dump", steps=1)
    for _ in range(2):
        open_source(tmp_path / "dump", store).tensors(0, 0)
    assert listed == ["0", "0"]


def test_a_directory_that_changes_while_it_is_listed_is_not_remembered(
    tmp_path: Path, store: DiskCache, listed: list[str]
) -> None:
    writer = write_big(tmp_path / "dump", steps=1)
    age(tmp_path / "dump")

    def arrives(snapshot: Progress) -> None:
        if "listing" in snapshot.text:
            _new_file(writer)

    open_source(tmp_path / "dump", store).tensors(0, 0, arrives)
    age(tmp_path / "dump")
    open_source(tmp_path / "dump", store).tensors(0, 0)
    assert listed == ["0", "0"]


def test_small_directories_are_not_remembered(tmp_path: Path, store: DiskCache, listed: list[str]) -> None:
    write_dump(tmp_path / "dump", steps=(0,))
    age(tmp_path / "dump")
    for _ in range(2):
        open_source(tmp_path / "dump", store).tensors(0, 0)
    assert listed == ["0", "0"]
    assert len(list((tmp_path / "dump" / "rank_0" / "Net" / "0" / "0").iterdir())) < remembered.WORTHWHILE


def test_steps_share_the_names_in_the_store(tmp_path: Path, store: DiskCache) -> None:
    write_big(tmp_path / "dump", steps=5)
    age(tmp_path / "dump")
    source = open_source(tmp_path / "dump", store)
    tables = [source.tensors(0, step) for step in source.steps(0)]
    kinds = store.info().kinds
    assert (kinds[remembered.KIND].entries, kinds[remembered.KIND_NAMES].entries) == (5, 1)
    assert kinds[remembered.KIND].size / sum(map(len, tables)) < 12
    again = open_source(tmp_path / "dump", store)
    places = [again.tensors(0, step).tensor_places for step in again.steps(0)]  # type: ignore[attr-defined] # of this source
    assert all(each is places[0] for each in places)


def test_a_table_that_knows_the_names_in_another_order(tmp_path: Path, store: DiskCache, listed: list[str]) -> None:
    """Step 0 lacks the first half of the nodes, so that they are numbered last when it is listed first."""
    writer = write_big(tmp_path / "dump", graph=False)
    for path in writer.step(0).glob("*.npy"):
        if int(path.name.partition(".0.0.")[0].rpartition("op")[2]) < 60:
            path.unlink()
    extra = writer.step(1) / "Add.late.0.0.005.output.0.DefaultFormat.npy"
    extra.touch()
    for number in range(150):
        (writer.step(0) / f"only{number}").touch()
    age(tmp_path / "dump")
    plain = open_source(tmp_path / "dump")
    expected = [[plain.tensors(0, step).spec(i) for i in range(len(plain.tensors(0, step)))] for step in (0, 1)]
    open_source(tmp_path / "dump" / "rank_0", store).tensors(0, 1)
    listed.clear()
    for order in ((0, 1), (1, 0)):
        source = open_source(tmp_path / "dump", store)
        tables = {step: source.tensors(0, step) for step in order}
        found = [[tables[step].spec(i) for i in range(len(tables[step]))] for step in (0, 1)]
        assert [set(specs) for specs in found] == [set(specs) for specs in expected]
        states = [tables[step].file_states(np.arange(len(tables[step])))[0] for step in (0, 1)]
        assert all((each >= 0).all() for each in states)
    assert listed == []


def test_a_name_store_that_lost_the_names_lists_again(tmp_path: Path, store: DiskCache, listed: list[str]) -> None:
    write_big(tmp_path / "dump", steps=1)
    age(tmp_path / "dump")
    expected = everything(open_source(tmp_path / "dump", store))

    class Forgetful(DiskCache):
        def get(self, kind: str, key: bytes) -> bytes | None:
            return None if kind == remembered.KIND_NAMES else super().get(kind, key)

    listed.clear()
    assert everything(open_source(tmp_path / "dump", Forgetful(store.path))) == expected
    assert listed == ["0"]


class Lying(DiskCache):
    """Answers with something else than what was put, and takes nothing new."""

    lie: Callable[[str, bytes], bytes]

    def get(self, kind: str, key: bytes) -> bytes | None:
        payload = super().get(kind, key)
        return self.lie(kind, payload) if payload is not None else None

    def put(self, kind: str, key: bytes, payload: bytes) -> None:
        pass


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, tuple[Any, ...]]:
    """A dump, a store that knows it, and all there is to say about it."""
    root = tmp_path_factory.mktemp("lies")
    odd_dump(root / "dump")
    writer = DumpWriter(root / "dump", Generation.V2_10)
    writer.graph(MLP)
    age(root / "dump")
    return root / "dump", root / "store", everything(open_source(root / "dump", DiskCache(root / "store")))


@examples(60)
@given(data=st.data())
def test_a_payload_that_was_damaged_is_as_good_as_none(
    liar: tuple[Path, Path, tuple[Any, ...]], data: st.DataObject
) -> None:
    dump, path, expected = liar
    how = data.draw(st.sampled_from(["cut", "longer", "zeros", "text", "head"]))
    which = data.draw(st.sampled_from([remembered.KIND, remembered.KIND_NAMES]))

    def lie(payload: bytes) -> bytes:
        at = data.draw(st.integers(8, 150))
        return {
            "cut": payload[: at * len(payload) // 151],
            "longer": payload + bytes(at),
            "zeros": bytes(len(payload)),
            "text": b"x" * len(payload),
            "head": payload[:at] + data.draw(st.binary(min_size=8, max_size=8)) + payload[at + 8 :],
        }[how]

    store = Lying(path)
    store.lie = lambda kind, payload: lie(payload) if kind == which else payload
    assert everything(open_source(dump, store)) == expected


def test_cancelling_works_where_nothing_is_listed(tmp_path: Path, store: DiskCache) -> None:
    write_big(tmp_path / "dump", steps=1)
    age(tmp_path / "dump")
    open_source(tmp_path / "dump", store).tensors(0, 0)

    def cancel(_: Progress) -> None:
        raise CancelledError("stopped")

    source = open_source(tmp_path / "dump", store)
    with pytest.raises(CancelledError):
        source.tensors(0, 0, cancel)
    assert len(source.tensors(0, 0)) == 240
