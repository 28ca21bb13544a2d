"""Files of a dump are opened in one way: none of them waits or fills the memory, and nobody goes around it."""

from __future__ import annotations

import ast
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.program_files import modules
from tests.sources.writer import Generation, write_dump
from tui_debugger.opener import (
    LINE_LIMIT,
    FileTooLargeError,
    NotRegularError,
    close,
    open_regular,
    pread,
    read_lines,
    read_regular,
)

ROOMS = (
    "sources",
    "graph",
    "stats",
    "watch",
    "text",
    "session",
    "check",
    "diagnose",
    "api",
    "cli",
    "tui",
    "recording",
    "mounts",
)
"""Packages that may look at a dump; those that are not there (yet) are left out."""
ELSEWHERE = {
    "stats/kernel/__init__.py:shared_library_path": "the sources of the kernel, which are part of this package",
    "stats/kernel/build.py:oldest_glibc": "the library that it has just made",
    # What is opened there is no file of a dump. Function or class: why.
    "sources/base.py:directory_states": "a directory, for the states of the files in it",
    "sources/follow.py:sends_no_events": "/proc/mounts",
    "sources/follow.py:_mount_type": "/proc/mounts",
    "session/watchpoints.py:WatchpointStore": "the user's own watchpoints",
    "session/watchpoints.py:read_watch_file": "a file of watchpoints that the user names: may be a pipe on purpose",
    "session/convert.py": "files that a conversion makes",
    "session/export_files.py": "files that an export makes",
    "tui/job_control.py:stand_in_has_stopped": "/proc",
    "cli/completion.py": "a file that comes with the package",
    "cli/config.py:_init": "a new configuration",
    "cli/listen.py:_pem": "a certificate that the user names",
    "cli/diff_runs.py:_mapping_file": "a file of names that the user names",
    "cli/dump_config.py:_save": "a new configuration of a recorder",
    "cli/help.py": "a page of the manual, which comes with the package",
    "text/writer.py:open_streams": "/dev/null, for a stream that the process was not given",
    "text/writer.py:abandon": "/dev/null, for an output that is gone",
    "stats/kernel/__init__.py": "a library that comes with the package",
    "stats/kernel/build.py": "the sources of that library",
    "stats/archive.py:MemberFile": "maps a temporary file of its own",
    "mounts/remote.py:RemoteFile": "maps a temporary file of its own",
    "stats/archive.py:temporary_array": "maps a temporary file of its own",
}
DOOR = ("sources", "graph", "stats", "check", "diagnose")
"""Packages that only look at dumps: whatever they list or look at may lie in a tar or at a URL."""
LOOKS = {
    *("os.scandir", "os.listdir", "os.stat", "os.lstat", "os.walk", "os.access"),
    *(f"os.path.{name}" for name in ("exists", "lexists", "isdir", "isfile", "islink", "getsize", "getmtime")),
}
LOOKS_ELSEWHERE = {
    "stats/kernel/__init__.py:shared_library_path": "the sources of the kernel, which are part of this package",
    "stats/kernel/build.py:sources": "the same",
    "stats/kernel/build.py:build": "libraries that were made of older ones",
    "sources/base.py:_file_states": "through the descriptor of a local directory, which is quicker",
    "sources/follow.py:Follower": "only what the operating system has sends events",
}
NAMES = {"read_text", "read_bytes", "memmap", "fromfile", "genfromtxt", "loadtxt", "mmap", "FileIO"}
OPENERS = {"os", "io", "codecs", "gzip", "bz2", "lzma", "mmap", "np", "numpy", "tarfile", "zipfile"}


def opened(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(function or class, line) of every call that opens a file."""
    for top in tree.body:
        name = getattr(top, "name", "")
        for node in ast.walk(top):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name) and called.id == "open":
                yield name, node.lineno
            elif isinstance(called, ast.Attribute):
                of = called.value.id if isinstance(called.value, ast.Name) else ""
                loads = called.attr == "load" and of in ("np", "numpy")
                opens = called.attr == "open" and (of in OPENERS or _opens_a_path(node))
                if called.attr in NAMES or loads or opens:
                    yield name, node.lineno


def _opens_a_path(call: ast.Call) -> bool:
    """Whether it looks like ``Path.open``: of something that is called a path, with a mode, or with an encoding."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(of, (ast.Name, ast.Attribute)) and ast.unparse(of).endswith(("path", "file")):
        return True
    modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    given = {each.arg for each in call.keywords}
    return bool(given & {"encoding", "mode", "errors", "newline"}) or any(set(mode) <= set("rwbxat+") for mode in modes)


def lies_in(where: str, rooms: tuple[str, ...]) -> bool:
    return any(where.startswith(f"{room}/") for room in rooms)


def test_nobody_opens_files_of_a_dump_in_another_way() -> None:
    found = {}
    for where, tree in modules().items():
        if lies_in(where, ROOMS):
            for name, line in opened(tree):
                if where not in ELSEWHERE and f"{where}:{name}" not in ELSEWHERE:
                    found[f"{where}:{line}"] = name
    assert found == {}, "open it with tui_debugger.opener, or say in ELSEWHERE why not"


def looked_at(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(function or class, line) of every call that lists a directory or looks at a path."""
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                ofs_path = node.func.attr in {"iterdir", "glob", "rglob"}
                if ofs_path or ast.unparse(node.func) in LOOKS:
                    yield getattr(top, "name", ""), node.lineno


def test_nobody_lists_or_looks_at_a_dump_in_another_way() -> None:
    found = {}
    for where, tree in modules().items():
        if lies_in(where, DOOR):
            for name, line in looked_at(tree):
                if f"{where}:{name}" not in LOOKS_ELSEWHERE:
                    found[f"{where}:{line}"] = name
    assert found == {}, "ask tui_debugger.opener, or say in LOOKS_ELSEWHERE why not"


@pytest.mark.parametrize(
    "code",
    [
        "open(name)",
        "path.open()",
        "self.path.open()",
        "(root / 'x').open('rb')",
        "root.open(encoding='utf-8')",
        "root.read_text()",
        "root.read_bytes()",
        "np.load(root)",
        "np.memmap(root)",
        "np.fromfile(root)",
        "os.open(root, 0)",
        "mmap.mmap(3, 5)",
        "io.FileIO(root)",
    ],
)
def test_every_other_way_is_seen(code: str) -> None:
    assert list(opened(ast.parse(f"def f():\n    return {code}")))


def test_what_opens_no_file_is_left_alone() -> None:
    for code in ("view.open(name)", "self.open(step)", "json.load(found)", "open_regular(path)", "read_lines(path)"):
        assert not list(opened(ast.parse(code)))


class TestOpening:
    def test_what_is_no_regular_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        (tmp_path / "directory").mkdir()
        (tmp_path / "zero").symlink_to("/dev/zero")
        with socket.socket(socket.AF_UNIX) as listening:
            here = Path.cwd()
            os.chdir(tmp_path)  # paths of sockets are short
            try:
                listening.bind("socket")
            finally:
                os.chdir(here)
            for name, kind in [("fifo", "a FIFO"), ("directory", "a directory"), ("zero", "a device")]:
                with pytest.raises(NotRegularError, match=kind):
                    open_regular(tmp_path / name)
            with pytest.raises(OSError, match=r".+"):
                open_regular(tmp_path / "socket")

    def test_no_more_is_read_than_is_plausible(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"12345")
        assert read_regular(path, 5) == b"12345"
        with pytest.raises(FileTooLargeError, match="5 bytes, and 4 are plausible"):
            read_regular(path, 4)

    def test_a_file_whose_size_the_system_does_not_tell(self) -> None:
        assert read_regular("/proc/self/status", 1 << 20)
        with pytest.raises(FileTooLargeError, match="more than 10 bytes"):
            read_regular("/proc/self/status", 10)

    def test_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"a\r\n\nb,\xff\nlast")
        assert list(read_lines(path)) == [b"a", b"", b"b,\xff", b"last"]
        path.write_bytes(b"a\n" + b"b" * LINE_LIMIT)
        assert [len(line) for line in read_lines(path)] == [1, LINE_LIMIT]
        path.write_bytes(b"a\n" + b"b" * (LINE_LIMIT + 1))
        with pytest.raises(FileTooLargeError, match="a line of more than"):
            list(read_lines(path))
        path.write_bytes(b"a\n" + b"b" * (3 * LINE_LIMIT) + b"\nc\n" + b"d" * (2 * LINE_LIMIT))
        assert [len(line) for line in read_lines(path, cut=True)] == [1, LINE_LIMIT + 1, 1, LINE_LIMIT + 1]


FILES = {
    "graph": "rank_0/graphs/ms_output_trace_code_graph_0.pb",
    "order": "rank_0/execution_order/ms_execution_order_graph_0.csv",
    "history": "rank_0/execution_order/ms_global_execution_order_graph_0.csv",
    "settings": "rank_0/.dump_metadata/data_dump.json",
    "versions": "rank_0/.dump_metadata/config.json",
    "devices": "rank_0/.dump_metadata/hccl.json",
    "statistics": "rank_0/Net/0/0/statistic.csv",
    "names": "rank_0/Net/0/0/mapping.csv",
}
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); "


@pytest.mark.covering
@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("kind", ["fifo", "zero", "sparse"])
def test_what_stands_in_place_of_a_file_is_a_doubt_and_costs_neither_time_nor_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, kind: str
) -> None:
    write_dump(tmp_path, Generation.V2_0, steps=(0,))
    path = tmp_path / FILES[what]
    path.unlink(missing_ok=True)
    if what == "names":  # read where a file is called by a number
        tensor = next(path.parent.glob("*.npy"))
        tensor.rename(path.parent / "123.npy")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = run(capsys, "check", tmp_path, "--no-cache")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert answer.code == 2
    assert path.name in answer.out + answer.err


def test_a_good_dump_is_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dump(tmp_path, Generation.V2_0, steps=(0,))
    assert run(capsys, "check", tmp_path, "--no-cache").code == 0


def test_a_graph_that_would_not_fit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ms_output_trace_code_graph_0.pb"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    code = LIMITED + (
        "import sys; from tui_debugger.errors import BadGraphError\n"
        "from tui_debugger.graph.messages import read_graph\n"
        "try: read_graph(sys.argv[1])\nexcept BadGraphError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "1,099,511,627,776 bytes" in done.stdout


def test_a_read_that_stops_early_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems and signals cut reads short, which they may; only a read of nothing is the end."""
    path = tmp_path / "x"
    path.write_bytes(bytes(range(100)))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, first: real(file, min(size, 7), first))
    descriptor, _ = open_regular(path)
    assert pread(descriptor, 1000, 3) == bytes(range(3, 100))
    assert pread(descriptor, 20, 40) == bytes(range(40, 60))
    close(descriptor)
