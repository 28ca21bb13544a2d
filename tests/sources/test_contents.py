"""Contents of files and matches that an earlier session worked out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.graph.graphs import DUMPS
from tests.linked import linked, own
from tests.unprivileged import unprivileged
from tui_debugger.cache.store import DiskCache
from tui_debugger.model import ReadSpec
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.mindspore import nodes
from tui_debugger.stats import npy

Dumps = Callable[[str], Path]
LATE = "mindspore-2.10-nan"
"""Its file names do not tell which file belongs to which node."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tensor files that were opened, by name."""
    names: list[str] = []
    real = os.open

    def noting(path: Any, *others: Any, **options: Any) -> int:
        if os.fsdecode(path).endswith(".npy"):
            names.append(Path(os.fsdecode(path)).name)
        return real(path, *others, **options)

    monkeypatch.setattr(npy.os, "open", noting)
    return names


@pytest.fixture
def dump(dumps: Dumps, tmp_path: Path) -> Path:
    """A copy of a dump, with one step."""
    root = linked(dumps(LATE), tmp_path / "dump")
    (data,) = (path for path in root.glob("rank_0/*/0") if path.is_dir())
    for step in range(1, 6):
        shutil.rmtree(data / str(step))
    return root


def files(root: Path) -> list[Path]:
    return sorted(root.glob("rank_0/*/0/0/*.npy"))


def where(source: Source) -> list[tuple[str, ReadSpec, int]]:
    """Which file belongs to which node."""
    table, rows = source.tensors(0, source.steps(0)[0]), source.nodes(0)
    return [(rows.names[table.node[i]], table.spec(i), int(table.flags[i])) for i in range(len(table))]


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_that_was_opened_before_is_opened_without_reading_a_tensor(
    dumps: Dumps, store: DiskCache, opened: list[str], name: str
) -> None:
    first = where(open_source(dumps(name), store))
    assert bool(opened) == ("2.10" in name)
    opened.clear()
    assert where(open_source(dumps(name), DiskCache(store.path))) == first
    assert where(open_source(dumps(name) / "rank_0", store)) == first
    assert opened == []
    assert where(open_source(dumps(name))) == first


def test_contents_are_known_where_the_match_is_not(
    dump: Path, store: DiskCache, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = where(open_source(dump, store))
    opened.clear()
    monkeypatch.setattr(nodes, "_RULES", b"other")
    assert where(open_source(dump, store)) == first
    assert opened == []


def swap(one: Path, other: Path) -> None:
    """Exchanges the contents of two files, as if another run had written them."""
    first, second = one.read_bytes(), other.read_bytes()
    assert len(first) == len(second)
    assert first != second
    for path, content in ((one, second), (other, first)):
        when = path.stat().st_mtime_ns + 10**9
        path.write_bytes(content)
        os.utime(path, ns=(when, when))


def gradients(root: Path) -> tuple[Path, Path]:
    """Two output files that only their contents tell apart."""
    alike = [
        path for path in files(root) if path.name.startswith("BatchMatMul.Gradients") and ".output.0." in path.name
    ]
    by_size: dict[int, Path] = {}
    for path in alike:
        other = by_size.setdefault(path.stat().st_size, path)
        if other is not path and other.read_bytes() != path.read_bytes():
            return other, path
    raise AssertionError("no such files")


def test_a_file_with_other_contents_is_read_again_and_counts(dump: Path, store: DiskCache, opened: list[str]) -> None:
    open_source(dump, store).tensors(0, 0)
    one, other = map(own, gradients(dump))
    swap(one, other)
    opened.clear()
    expected = where(open_source(dump))
    opened.clear()
    assert where(open_source(dump, store)) == expected
    assert sorted(set(opened)) == sorted({one.name, other.name})
    opened.clear()
    assert where(open_source(dump, store)) == expected
    assert opened == []


def test_files_that_changed_just_now_are_read_every_time(dump: Path, store: DiskCache, opened: list[str]) -> None:
    one, other = map(own, gradients(dump))
    for path in (one, other):
        os.utime(path)
    for _ in range(3):
        opened.clear()
        open_source(dump, store).tensors(0, 0)
    assert sorted(set(opened)) == sorted({one.name, other.name})


def test_files_that_hold_no_array_are_known_too(dump: Path, store: DiskCache, opened: list[str]) -> None:
    one = own(gradients(dump)[0])
    long_ago = one.stat().st_mtime_ns
    one.write_bytes(one.read_bytes()[:-1])
    os.utime(one, ns=(long_ago, long_ago))
    first = where(open_source(dump, store))
    opened.clear()
    assert where(open_source(dump, store)) == first == where(open_source(dump))
    assert len(opened) == len(set(opened)) > 100  # only by the one without a store


def test_files_that_may_not_be_read_are_tried_again(dump: Path, store: DiskCache, opened: list[str]) -> None:
    one = own(gradients(dump)[0])
    one.chmod(0)
    closed = unprivileged(lambda: where(open_source(dump, store)))
    opened.clear()
    assert unprivileged(lambda: where(open_source(dump, store))) == closed
    assert one.name in opened
    one.chmod(0o600)
    assert where(open_source(dump, store)) == where(open_source(dump))


def test_what_the_system_refuses_once_is_tried_again(
    dump: Path, store: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = own(gradients(dump)[0])
    read = nodes.open_array

    def refusing(spec: ReadSpec) -> Any:
        if spec.path.endswith(one.name):
            raise npy._unreadable(spec, "busy") from OSError("busy")
        return read(spec)

    monkeypatch.setattr(nodes, "open_array", refusing)
    open_source(dump, store).tensors(0, 0)
    monkeypatch.undo()
    assert where(open_source(dump, store)) == where(open_source(dump))


def test_another_graph_is_matched_anew(dump: Path, store: DiskCache, opened: list[str]) -> None:
    open_source(dump, store).tensors(0, 0)
    for path in dump.glob("rank_0/execution_order/ms_execution_order_graph_*.csv"):
        own(path).write_text("\n".join(path.read_text().splitlines()[:20]))
    opened.clear()
    found = where(open_source(dump, store))
    assert opened == []  # the contents are known
    assert found == where(open_source(dump))


class Damaged(DiskCache):
    """Payloads of one kind are cut or are something else."""

    kind, keep, noise = "", 0, b""

    def get(self, kind: str, key: bytes) -> bytes | None:
        payload = super().get(kind, key)
        if payload is None or kind != self.kind:
            return payload
        return payload[: self.keep] + self.noise * (len(payload) - self.keep)

    def put(self, kind: str, key: bytes, payload: bytes) -> None:
        pass


@pytest.mark.covering
@pytest.mark.parametrize("kind", [nodes.CONTENTS_KIND, nodes.MATCH_KIND])
@pytest.mark.parametrize("keep", [0, 8, 24, 60, 1000])
@pytest.mark.parametrize("noise", [b"", b"~"])
def test_damaged_payloads_are_as_good_as_none(
    dumps: Dumps, tmp_path_factory: pytest.TempPathFactory, kind: str, keep: int, noise: bytes
) -> None:
    name = "mindspore-2.10-mlp"
    path = tmp_path_factory.getbasetemp() / "damaged-store"
    expected = where(open_source(dumps(name), DiskCache(path)))
    store = Damaged(path)
    store.kind, store.keep, store.noise = kind, keep, noise
    found = where(open_source(dumps(name), store))
    assert found == expected
