"""Bad input: the rest works, the row says what is wrong, the coverage counts it, and the dump stays as it is."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.linked import own
from tests.session.opened import checked, found, only, opened, snapshot, watch, writable_copy
from tests.sources.writer import MLP, DumpWriter, Generation, overwrite, write_dump, write_step
from tests.unprivileged import unprivileged
from tui_debugger.errors import NotADumpError, TdbgError, UnreadableTensorError
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import ErrorBits, NodeKind, NodeSelection, NodeSelector, Verdict
from tui_debugger.session import Session
from tui_debugger.session.watchpoints import WatchpointStore
from tui_debugger.sources.registry import open_source

MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
STEP = "rank_0/Net/0/1"


def use_everything(path: Path, store: WatchpointStore | None = None) -> Session:
    """A whole session, as a person would have it: open, look at every node, check, search, refresh, close."""
    session = Session(open_source(path), store=store)
    session.open()
    session.add_recommended()
    watch(session, "WNC", "TR max_min_gt=1", "TZ")
    for rank in session.ranks():
        session.history(rank)
        session.stack_index(rank)
        session.tree(rank)
    result = session.check(session.pairs())
    for hit in result.hits[:50]:
        with suppress(UnreadableTensorError):
            session.read(hit.key)
    for rank in session.ranks():
        session.select(rank, NodeQuery("a", watched=0, hit=True))
        for step in session.steps(rank)[:1]:
            for row in range(0, len(session.nodes(rank)), 5):
                session.measure(session.tensor_rows(rank, step, row))
    for pair in result.pairs:
        session.cost((pair,))
    session.refresh()
    session.check(session.pairs())
    session.close()
    return session


def test_nothing_in_the_dump_is_written_or_deleted(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    root = writable_copy(dumps("mindspore-2.10-mlp"), tmp_path / "dump")
    before = snapshot(root)
    state = tmp_path / "state"
    session = use_everything(root, WatchpointStore(str(root), state))
    assert len(session.watchpoints) > 5
    assert len(list(state.iterdir())) == 1
    with pytest.raises(TdbgError, match="never written"):
        session.save_npy(checked(session)[0].key, root / "out.npy")
    assert snapshot(root) == before


# -- tensor files ----------------------------------------------------------------------------------


class _Opens:
    """Unpickling this creates a file: the sign that something was unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.marker), "w"))


def object_array(marker: Path) -> bytes:
    """A .npy file that runs code when it is loaded with pickles allowed."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickle.dumps([_Opens(marker)])


def npy(header: bytes, data: bytes = b"\0" * 24) -> bytes:
    """A .npy file with any header text."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def truncated(whole: bytes) -> bytes:
    return whole[:-1]


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "is empty"),
    "truncated": (truncated, "is truncated: 1 of 24 bytes"),
    "cut inside the header": (lambda whole: whole[:40], "ends inside its header"),
    "garbage": (lambda _: bytes(range(256)) * 4, "is not a .npy file"),
    "a header that is no dictionary": (lambda _: npy(b"[1, 2]\n"), "header"),
    "a header that never ends": (lambda _: npy(b"{" * 5000), "damaged header"),
    "a negative shape": (
        lambda _: npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}"),
        "negative dimension",
    ),
    "an impossible shape": (
        lambda _: npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}"),
        "impossible shape",
    ),
    "an unknown type": (
        lambda _: npy(b"{'descr': '<q9', 'fortran_order': False, 'shape': (2, 3)}"),
        "unknown element type",
    ),
    "a version of the future": (lambda whole: whole[:6] + b"\x09" + whole[7:], ".npy version 9.0"),
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A healthy dump of three steps."""
    write_dump(tmp_path / "dump")
    return tmp_path / "dump"


def relu(root: Path, step: str = STEP) -> Path:
    """The file of one activation."""
    (path,) = (root / step).glob("ReLU.*.output.*")
    return path


def check_that_one_is_unreadable(session: Session, what: str) -> None:
    """One row says why, one tensor is counted, everything else is judged."""
    everything = len(session.source.tensors(0, 1))
    result = session.check(session.pairs(steps=(1,)))
    hit, row = only(hit for hit in result.hits if hit.key.node == RELU)
    assert (hit.verdict, row.error) == (Verdict.CANNOT_JUDGE, ErrorBits.UNREADABLE)
    assert what in hit.detail
    cover = result.coverage
    assert cover.unreadable == 1
    assert cover.checked + cover.skipped + cover.unreadable == everything
    assert [hit for hit in result.hits if hit.key.node != RELU] == []
    (shown,) = [row for row in session.measure(session.tensor_rows(0, 1, hit.row)) if row.role == "out"]
    assert what in shown.error
    assert shown.stats is None
    with pytest.raises(UnreadableTensorError, match=r"^[^\x1b]*$"):
        session.read(hit.key)
    assert all(h.verdict is not Verdict.CANNOT_JUDGE for h in checked(session, 0))


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_tensor_is_said_and_counted(dump: Path, name: str) -> None:
    damage, what = BROKEN[name]
    relu(dump).write_bytes(damage(relu(dump).read_bytes()))
    check_that_one_is_unreadable(opened(dump, "TO"), what)


def test_a_pickled_array_is_never_loaded(dump: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    relu(dump).write_bytes(object_array(marker))
    check_that_one_is_unreadable(opened(dump, "TO"), "pickled")
    assert not marker.exists()
    pickle.loads(pickle.dumps(_Opens(marker))).close()  # noqa: S301 - our own bytes
    assert marker.exists(), "the trap works"


def test_a_file_that_vanishes_between_listing_and_check(dump: Path) -> None:
    session = opened(dump, "TO")
    session.source.tensors(0, 1)
    relu(dump).unlink()
    check_that_one_is_unreadable(session, "no such file")
    session.refresh()
    assert session.check(session.pairs()).coverage.unreadable == 0


def test_a_file_that_becomes_a_directory_between_listing_and_check(dump: Path) -> None:
    session = opened(dump, "TO")
    session.source.tensors(0, 1)
    path = relu(dump)
    path.unlink()
    path.mkdir()
    check_that_one_is_unreadable(session, "a directory")


def test_a_link_that_leads_nowhere_or_to_itself(dump: Path) -> None:
    path = relu(dump)
    path.unlink()
    path.symlink_to(path.name)
    session = opened(dump, "TO")
    result = session.check(session.pairs(steps=(1,)))
    assert result.coverage.unreadable <= 1
    assert found(result.hits) == []


def test_a_named_pipe_does_not_stop_a_check(dump: Path) -> None:
    path = relu(dump)
    path.unlink()
    os.mkfifo(path)
    check_that_one_is_unreadable(opened(dump, "TO"), "not a regular file")


def test_a_file_without_permission(dump: Path) -> None:
    relu(dump).chmod(0)
    unprivileged(lambda: check_that_one_is_unreadable(opened(dump, "TO"), "permission denied"))


def test_an_unreadable_tensor_spoils_the_comparison_of_the_next_step_only(dump: Path) -> None:
    relu(dump).write_bytes(b"")
    session = opened(dump, "WNC")
    hits = {hit.key.step: hit for hit in checked(session) if hit.key.node == RELU}
    assert {step: hit.verdict for step, hit in hits.items()} == {
        0: Verdict.NOT_COMPARABLE,
        1: Verdict.CANNOT_JUDGE,
        2: Verdict.CANNOT_JUDGE,
    }


# -- everything else in a dump ---------------------------------------------------------------------

TABLES = (
    "graphs/ms_output_trace_code_graph_0.pb",
    "execution_order/ms_execution_order_graph_0.csv",
    "execution_order/ms_global_execution_order_graph_0.csv",
    ".dump_metadata/data_dump.json",
    ".dump_metadata/config.json",
    "Net/0/1/mapping.csv",
    "Net/0/1/statistic.csv",
)

JUNK = {
    "a directory": None,
    "empty": b"",
    "no text": b"\xff\0\x1b[2J\n" * 40,
    "a brace": b"{",
    "lists": b"[[[[1]]]]",
    "other columns": b"a,b\n1,2,3\n,,,\n",
}


@pytest.mark.covering
@pytest.mark.parametrize("content", JUNK.values(), ids=JUNK)
@pytest.mark.parametrize("name", TABLES)
def test_a_broken_table_leaves_the_tensors(dump: Path, name: str, content: bytes | None) -> None:
    np.save(relu(dump), np.full((2, 3), np.nan, np.float32))
    overwrite(dump / "rank_0" / name, content)
    session = use_everything(dump)
    nodes = {node for node, step in found(checked(session, 1)) if "ReLU" in node}
    assert nodes in ({RELU}, {RELU.replace("/", "_")})


@pytest.mark.parametrize("gone", ["rank_0/graphs", "rank_0/execution_order", "rank_0/.dump_metadata", "rank_0/Net/0/2"])
def test_a_file_where_a_directory_should_be(dump: Path, gone: str) -> None:
    shutil.rmtree(dump / gone)
    (dump / gone).write_bytes(b"\x1b")
    session = use_everything(dump)
    assert set(session.steps(0)) >= {0, 1}


def test_a_dump_that_vanishes_while_it_is_open(dump: Path) -> None:
    session = opened(dump, "TO")
    session.source.tensors(0, 0)
    shutil.rmtree(dump)
    result = session.check(session.pairs())
    assert result.coverage.checked == 0
    assert found(result.hits) == []
    session.refresh()
    assert session.check(session.pairs()).hits == ()


@pytest.mark.parametrize("kind", ["nothing", "file", "empty", "foreign"])
def test_what_is_no_dump_is_one_clear_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_bytes(b"\0")
    elif kind != "nothing":
        path.mkdir()
    if kind == "foreign":
        (path / "a.txt").touch()
    with pytest.raises(NotADumpError) as caught:
        open_source(path)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 2


# -- names -----------------------------------------------------------------------------------------

NAMES = (
    b"Default--[red]x[b]--Add-op1",
    b"Default--\x1b[2J\x1b]0;title\x07--Add-op2",
    b"Default--caf\xe9--Add-op3",
    "Default--ж--Add-op4".encode(),
    b"Default--a b,c\"d'e;f$g`h--Add-op5",
    b"Default--" + b"x" * 150 + b"--Add-op6",
)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_a_node_like_others(tmp_path: Path, name: bytes) -> None:
    step = DumpWriter(tmp_path / "dump", Generation.V2_3).step(0)
    path = bytes(step) + b"/Add." + name + b".0.0.5.output.0.DefaultFormat.npy"
    with open(path, "wb") as file:  # noqa: PTH123 - a path of bytes
        np.save(file, np.array([np.nan, 1]))
    session = opened(tmp_path / "dump", "TO")
    hit, _ = only(checked(session))
    assert np.isnan(session.read(hit.key)[0])
    assert session.save_npy(hit.key, tmp_path / "out").exists()
    assert session.select(0, NodeQuery("Add-op")).sum() == 1
    store = WatchpointStore(str(tmp_path / "dump"), tmp_path / "state")
    kept = Session(open_source(tmp_path / "dump"), store=store)
    kept.watchpoints.add("tensor_overflow", (), NodeSelection((NodeSelector(NodeKind.NODE, hit.key.node),)))
    again = Session(open_source(tmp_path / "dump"), store=WatchpointStore(str(tmp_path / "dump"), tmp_path / "state"))
    assert again.watchpoints.problem == ""
    assert [h.key for h in checked(again)] == [hit.key]


def test_what_is_wrong_with_the_saved_watchpoints_is_a_notice(tmp_path: Path) -> None:
    DumpWriter(tmp_path / "dump", Generation.V2_3).step(0)
    store = WatchpointStore(str(tmp_path / "dump"), tmp_path / "state")
    store.path.parent.mkdir()
    store.path.write_text("[[watchpoint]]\nwatch = 'XX'\n")
    (notice,) = [each for each in Session(open_source(tmp_path / "dump"), store=store).notices if "saved" in each]
    assert "watchpoint 1: XX" in notice


def test_a_name_of_300_characters_comes_through_mapping_csv(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_5)
    long = "Default--" + "scope[0]" * 40 + "--ReLU-op7"
    original = f"ReLU.{long}.0.0.5.output.0.DefaultFormat.float32.npy"
    writer.mapped(0, "1234567890", original, np.full(3, np.nan))
    writer.mapped(0, "555", "../../etc/passwd", np.full(3, np.nan))
    session = opened(tmp_path, "TO")
    assert found(checked(session)) == [(long.replace("--", "/"), 0)]


def test_watchpoints_that_name_nothing_find_nothing(dump: Path) -> None:
    session = opened(dump, "TO @ node=no/such/node", "TZ @ scope=[", "WNC @ type=\x1b[31m")
    result = session.check(session.pairs())
    assert result.hits == ()
    assert result.coverage.checked == 0


# -- any damage ------------------------------------------------------------------------------------


@contextmanager
def damaged(path: Path, content: bytes | None) -> Iterator[None]:
    """Other bytes in a file for a while; None removes it."""
    kept = own(path).read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(kept)


def spoil(content: bytes, other: bytes, random: np.random.Generator) -> bytes | None:
    """The content after an accident."""
    at = int(random.integers(0, len(content) + 1))
    flipped = bytearray(content)
    for where in random.integers(0, min(len(content), 400) or 1, 6):  # headers, tags and lengths stand in front
        flipped[where : where + 1] = bytes([int(random.integers(0, 256))])
    noise = bytes(random.integers(0, 256, max(len(content), 50), dtype=np.uint8))
    accidents = (content[:at], b"", other, None, content + noise[:50], bytes(flipped), noise)
    return accidents[int(random.integers(len(accidents)))]


@pytest.fixture(scope="module", params=["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
def playground(
    request: pytest.FixtureRequest, dumps: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of two steps of a real dump that may be damaged and repaired."""
    root = writable_copy(dumps(request.param), tmp_path_factory.mktemp("damage") / "dump")
    for step in (2, 3, 4, 5):
        shutil.rmtree(root / f"rank_0/MLP/0/{step}")
    return root


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(12))
def test_no_damage_ever_raises_anything_but_our_own_errors(playground: Path, seed: int) -> None:
    """Three tensor files and one of the tables at a time; the damaged dump is not touched either."""
    random = np.random.default_rng(seed)
    files = sorted(path for path in playground.rglob("*") if path.is_file())
    tensors = [path for path in files if path.suffix == ".npy"]
    tables = [path for path in files if path.suffix != ".npy"]
    chosen = [*random.choice(len(tensors), 3, replace=False)]
    paths = [*(tensors[int(i)] for i in chosen), tables[int(random.integers(len(tables)))]]
    other = tensors[int(random.integers(len(tensors)))].read_bytes()
    with ExitStack() as accidents:
        for path in paths:
            accidents.enter_context(damaged(path, spoil(path.read_bytes(), other, random)))
        before = snapshot(playground)
        with suppress(TdbgError):
            use_everything(playground)
        assert snapshot(playground) == before


def test_steps_of_a_damaged_dump_that_are_healthy_are_judged_as_ever(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    for path in writer.step(0).glob("*.npy"):
        path.write_bytes(b"\x93NUMPY")
    write_step(writer, 2)
    np.save(relu(tmp_path, "rank_0/Net/0/2"), np.full((2, 3), np.nan, np.float32))
    session = opened(tmp_path, "TO")
    result = session.check(session.pairs())
    assert found(result.hits) == [(RELU, 2)]
    assert result.coverage.unreadable == len(session.source.tensors(0, 0))
