"""A dump on a real web server: read in ranges, the same as the directory; what fails is never clean."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.faults.dumps import LAYOUTS as LAYOUTS_OF_FAULTS
from tests.mounts.places import Dumps, local
from tests.mounts.web import WebServer, serving
from tests.sources.arrays import write_arrays, write_safetensors
from tui_debugger.check.records import SAMPLED
from tui_debugger.mounts import reached, remote
from tui_debugger.sources import open_source
from tui_debugger.sources.mindspore.reader import READER as MINDSPORE
from tui_debugger.stats.npy import open_array, open_window, part_of

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")

Capsys = pytest.CaptureFixture[str]
LAYOUTS = (
    "mindspore",
    "npy",
    "npz",
    "safetensors",
    "msprobe-mix/nan",
    "sglang-megatron/sglang-hooks",
    "torchtitan-numerics/bad",
)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as server:
        yield server


@pytest.fixture
def arrays(web: WebServer) -> str:
    """The URL of a dump of three steps."""
    for step in range(3):
        values = {f"layer.{n}": np.full((20, 5), step + n + 1, "f4") for n in range(4)}
        write_arrays(web.folder / "run" / f"step_{step}", values)
    return f"{web.url}/run"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_check_says_the_same_as_of_the_directory(web: WebServer, dumps: Dumps, capsys: Capsys, layout: str) -> None:
    copy = web.folder / "dump"
    shutil.copytree(local(layout, web.folder.parent / "local", dumps), copy, copy_function=shutil.copyfile)
    here = run(capsys, "check", copy, "--json", "--no-cache")
    there = run(capsys, "check", f"{web.url}/dump", "--json", "--no-cache")
    assert there.code == here.code != 2
    for key in ("verdict", "hits", "origins", "coverage"):
        assert there.json.get(key) == here.json.get(key)


def test_nothing_is_downloaded_whole(web: WebServer) -> None:
    values = np.arange(4 << 20, dtype="f4").reshape(1024, -1)
    step = web.folder / "run" / "step_0"
    step.mkdir(parents=True)
    write_safetensors(step / "model.safetensors", {"a": values, "b": values + 1})
    np.save(step / "c.npy", values)
    with closing(open_source(reached(Path(f"{web.url}/run")))) as source:
        table = source.tensors(0, 0)
        assert len(table) == 3
        assert max(web.sent.values(), default=0) <= 2 * remote.BLOCK  # headers
        for row in range(3):
            part = open_window(table.spec(row), (range(500, 504), range(10, 20)))
            assert np.array_equal(part - part[0, 0], values[500:504, 10:20] - values[500, 10])
        assert sum(web.sent.values()) < 12 * remote.BLOCK
        whole = open_array(table.spec(0))
        assert np.array_equal(whole, values)
        before = sum(web.sent.values())
        open_window(table.spec(1), (range(500, 504), range(10, 20)))
        assert sum(web.sent.values()) == before  # kept


@pytest.mark.parametrize("order", ["C", "F"])
def test_parts_are_those_of_the_array(web: WebServer, order: str) -> None:
    values = np.asarray(np.random.default_rng(2).normal(size=(30, 40, 50)).astype("f8"), order=order)  # type: ignore[call-overload]
    write_arrays(web.folder / "run" / "step_0", {"a": values, "flat": np.arange(1 << 18, dtype="f4")})
    with closing(open_source(Path(f"{web.url}/run"))) as source:
        table = source.tensors(0, 0)
        one, flat = (table.spec(row) for row in range(2))
        for entries in (
            (3, 4, 5),
            (range(2, 9), 7, range(50)),
            (range(29, -1, -7), range(39, 20, -1), range(0, 50, 20)),
            (29, range(40), range(3, 4)),
            (range(0), range(40), 2),
            (range(30), range(40), range(50)),
        ):
            assert np.array_equal(open_window(one, entries), part_of(values, entries)), entries
        for along in (range(0, 1 << 18, 60_000), range((1 << 18) - 1, -1, -50_000), range(7, 9)):
            assert open_window(flat, (along,)).tolist() == list(along)


def test_blocks_are_kept_within_bounds() -> None:
    blocks = remote.FetchedBlocks(100)
    for number in range(50):
        blocks.put((number,), bytes(9))
        assert blocks.size <= 100
    assert blocks.get((49,)) == bytes(9)
    assert blocks.get((0,)) is None


def test_listings_are_asked_for_once(web: WebServer, arrays: str) -> None:
    with closing(open_source(Path(arrays))) as source:
        for step in source.steps(0):
            source.tensors(0, step)
        seen = [path for method, path in web.requests if method == "GET" and path.endswith("/")]
        assert len(seen) == len(set(seen))


def test_who_asks_whether_this_is_a_mindspore_dump_needs_the_listing_only(web: WebServer, arrays: str) -> None:
    for step in range(3):
        assert MINDSPORE.recognises(reached(Path(f"{arrays}/step_{step}"))) is None
    assert not [path for _, path in web.requests if path.endswith(".npy")]


def test_what_is_new_is_seen_when_it_is_opened_again(web: WebServer, arrays: str, capsys: Capsys) -> None:
    assert run(capsys, "check", arrays, "--no-cache").code == 0
    write_arrays(web.folder / "run" / "step_3", {"layer.0": np.full(3, np.nan, "f4")})
    assert run(capsys, "check", arrays, "--no-cache").code == 1


@pytest.mark.parametrize("tags", [True, False])
def test_the_index_is_used_only_where_the_server_tells_files_apart(
    web: WebServer, arrays: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, tags: bool
) -> None:
    web.tags = tags
    monkeypatch.setattr(remote, "BLOCKS", remote.FetchedBlocks(0))
    many = {f"more.{n}": np.ones(3, "f4") for n in range(2 * SAMPLED)}
    for step in range(3):
        write_arrays(web.folder / "run" / f"step_{step}", many)
    old = 1_700_000_000
    for path in web.folder.rglob("*.npy"):
        os.utime(path, (old, old))
    assert run(capsys, "check", arrays).code == 0
    web.sent.clear()
    assert run(capsys, "check", arrays).code == 0
    read = [path for path in web.sent if path.endswith(".npy")]
    assert len(set(read)) <= SAMPLED if tags else len(set(read)) > 3 * 2 * SAMPLED
    file = web.folder / "run" / "step_1" / "layer.2.npy"
    np.save(file, np.full((20, 5), np.nan, "f4"))
    assert run(capsys, "check", arrays).code == 1


def _forbid(web: WebServer) -> None:
    web.statuses[r"step_1/layer\.2\.npy"] = 403


def _lose(web: WebServer) -> None:
    web.cut.add(r"step_1/layer\.2\.npy")


def _vanish(web: WebServer) -> None:
    web.statuses[r"step_1/layer\.2\.npy"] = 404


def _break(web: WebServer) -> None:
    web.statuses[r"step_1/layer\.2\.npy"] = 500


def _hang(web: WebServer) -> None:
    web.hang.add(r"step_1/layer\.2\.npy")


@pytest.mark.parametrize("fault", [_forbid, _lose, _vanish, _break, _hang])
def test_a_file_that_cannot_be_had_is_a_doubt(
    web: WebServer, arrays: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, fault: Callable[[WebServer], None]
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 1.0)
    fault(web)
    answer = run(capsys, "check", arrays, "--no-cache")
    assert answer.code == 2
    assert "1 unreadable" in answer.out
    assert "layer.2" in answer.out + answer.err


@pytest.mark.parametrize(("status", "why"), [(403, "ermission denied"), (500, "answers 500")])
def test_a_directory_that_cannot_be_listed_is_a_doubt(
    web: WebServer, arrays: str, capsys: Capsys, status: int, why: str
) -> None:
    web.statuses[r"/step_1/?$"] = status
    answer = run(capsys, "check", arrays, "--no-cache")
    assert answer.code == 2
    assert why in answer.out + answer.err


FAULTS: dict[str, Callable[[WebServer, str], None]] = {
    "403": lambda web, path: web.statuses.update({path: 403}),
    "500": lambda web, path: web.statuses.update({path: 500}),
    "cut": lambda web, path: web.cut.add(path),
    "short": lambda web, path: web.short.add(path),
    "hangs": lambda web, path: web.hang.add(path),
}
"""What a server may do to all requests for a path; to say that nothing is there is none."""
CLEAN = ("npy", "npz", "packed", "safetensors", "pt", *LAYOUTS_OF_FAULTS)
"""Small dumps: a check asks for everything in them, once for each thing that can fail."""


@pytest.mark.covering
@pytest.mark.timeout(3600)  # a thorough run tries each path
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layout", CLEAN)
def test_what_failed_is_not_taken_for_missing(
    web: WebServer,
    dumps: Dumps,
    *,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    layout: str,
    fault: str,
) -> None:
    """Each file and directory that a clean check asks for, by itself; all of them in a thorough run.

    Exit code 0 implies that nothing was unread: the same answer, and not a word less; a fault is no finding.
    """
    if layout in LAYOUTS_OF_FAULTS:
        LAYOUTS_OF_FAULTS[layout](web.folder / "dump", dumps)
    else:
        local(layout, web.folder / "dump", dumps)
    line = ("check", f"{web.url}/dump", "--no-cache", "--watch", "TO")
    whole = run(capsys, *line)
    assert whole.code == 0
    asked = sorted({path for _, path in web.requests if path.startswith("/dump") and (web.folder / path[1:]).exists()})
    assert len(asked) > 3
    if fault == "short":  # a listing that is cut and says that it is whole cannot be told from a short one
        asked = [path for path in asked if not path.endswith("/")]
    monkeypatch.setattr(remote, "PATIENCE", 0.5 if fault == "hangs" else remote.PATIENCE)
    few = 2 if fault == "hangs" else 4
    for path in asked if request.config.getoption("--thorough") else asked[:: -(-len(asked) // few)]:
        monkeypatch.setattr(remote, "BLOCKS", remote.FetchedBlocks(remote.KEPT))
        web.statuses, web.cut, web.short, web.hang = {}, set(), set(), set()
        FAULTS[fault](web, f"^{re.escape(path)}$")
        answer = run(capsys, *line)
        assert answer.code == 2 or answer == whole, path
        assert answer.code != 2 or "do:" in answer.err or "cannot" in answer.out, path


def test_a_directory_above_that_is_closed_does_not_matter(web: WebServer, arrays: str, capsys: Capsys) -> None:
    web.statuses[r"^/$"] = 403
    assert run(capsys, "check", arrays, "--no-cache").code == 0


@pytest.mark.parametrize("header", ["bytes 7-18/{size}", "bytes {first}-{last}/7", "", "nonsense"])
def test_another_part_than_was_asked_for_is_no_tensor(web: WebServer, arrays: str, capsys: Capsys, header: str) -> None:
    web.ranges_said = header
    answer = run(capsys, "check", arrays, "--no-cache")
    assert answer.code == 2
    assert "another part came than was asked for" in answer.out + answer.err


def test_a_server_that_sends_no_ranges_sends_no_big_file(web: WebServer, capsys: Capsys) -> None:
    write_arrays(web.folder / "run" / "step_0", {"small": np.ones(4, "f4"), "big": np.ones(1 << 20, "f4")})
    web.ranges = False
    answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
    assert answer.code == 2
    assert "1 unreadable" in answer.out


@pytest.mark.parametrize("status", [0, 403, 503])
def test_a_url_that_cannot_be_had_is_an_error_in_three_parts(web: WebServer, capsys: Capsys, status: int) -> None:
    if status:
        web.statuses[".*"] = status
    answer = run(capsys, "check", f"{web.url}/run")
    assert answer.code == 2
    assert {0: "nothing lies there", 403: "credentials", 503: "answers 503"}[status] in answer.err
    assert f"where: {web.url}/run" in answer.err
    assert "do:" in answer.err


def test_nobody_listens(capsys: Capsys, web: WebServer) -> None:
    web.server_close()
    web.shutdown()
    answer = run(capsys, "check", f"{web.url}/run")
    assert answer.code == 2
    assert "do:" in answer.err


def test_names_that_a_url_writes_otherwise(web: WebServer, capsys: Capsys) -> None:
    names = ("a b", "a%20b", "x=1___y=2", "ä#1", "q?z", "p+q")
    write_arrays(web.folder / "run" / "step_0", {name: np.ones(3, "f4") for name in names})
    answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
    assert f"{len(names)} tensors checked, 0 unreadable" in answer.out
