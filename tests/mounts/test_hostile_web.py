"""A web server that is broken or means no good costs its patience and little memory, and is never clean."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests.cli.running import run
from tests.mounts.attacks import LARGE, LATE, OF_LISTINGS, OF_PARTS, page, redirect, sends, text
from tests.mounts.web import WebServer, serving
from tests.sources.arrays import write_arrays
from tui_debugger import DumpAnalyzer, opener
from tui_debugger.errors import TdbgError
from tui_debugger.mounts import reached, remote
from tui_debugger.mounts.refusals import allow_redirects

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")

Capsys = pytest.CaptureFixture[str]
STEP = r"GET /run/step_1/$"
FILE = r"GET .*step_1/layer\.2\.npy"
MOST = 500_000
"""KiB of memory that a process may have had."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    """Serves a dump of three steps that is clean."""
    for step in range(3):
        values = {f"layer.{n}": np.full((20, 5), step + n + 1, "f4") for n in range(4)}
        write_arrays(tmp_path / "served" / "run" / f"step_{step}", values)
    with serving(tmp_path / "served") as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 2.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("attack", OF_LISTINGS)
def test_a_list_of_names_that_is_none_is_a_doubt(web: WebServer, capsys: Capsys, attack: str) -> None:
    web.answers[STEP], said = OF_LISTINGS[attack]
    begun = time.monotonic()
    answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
    assert time.monotonic() - begun < 20
    assert answer.code == 2
    assert is_said(said, answer.out + answer.err)
    assert "step_1" in answer.out + answer.err


def is_said(why: str, words: str) -> bool:
    """A slow machine reads no 64 MiB in time."""
    return why in words or (why == LARGE and LATE in words)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("attack", OF_PARTS)
def test_a_part_of_a_file_that_is_none_is_an_unreadable_tensor(web: WebServer, capsys: Capsys, attack: str) -> None:
    web.answers[FILE], said = OF_PARTS[attack]
    begun = time.monotonic()
    answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
    assert time.monotonic() - begun < 20
    assert answer.code == 2
    assert said in answer.out
    assert "1 unreadable" in answer.out


def started(web: WebServer, *before: str) -> subprocess.Popen[str]:
    """A check of the dump in a process of its own; ``before`` are lines of Python that run first."""
    code = "\n".join(
        (*before, "import sys", "from tui_debugger.cli.main import main", "code = main(sys.argv[1:])", LAST)
    )
    line = [sys.executable, "-c", code, "check", f"{web.url}/run", "--no-cache"]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


LAST = "import pathlib; print(pathlib.Path('/proc/self/status').read_text(), file=sys.stderr); sys.exit(code)"
"""The last line of such a process tells of its memory; what the system tells counts that of its parent, too."""
IMPATIENT = "import aiohttp; from tui_debugger.mounts import remote; remote.PATIENCE = 2.0"


@pytest.mark.parametrize("attack", ["bomb", "endless", "one-tag"])
def test_an_attack_on_the_top_takes_little_memory_and_is_said_in_three_parts(web: WebServer, attack: str) -> None:
    web.answers[r"GET /run/$"], said = OF_LISTINGS[attack]
    process = started(web, IMPATIENT)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 2
    assert is_said(said, words)
    assert "where: /http:/127.0.0.1" in words
    assert "do:" in words


def peak(process: subprocess.Popen[str]) -> int:
    """Waits for the end of a process, and returns the most memory that it had, in KiB."""
    _, words = process.communicate()
    found = re.search(r"VmHWM:\s+(\d+) kB", words)
    assert found is not None, words
    return int(found[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by Linux only")
@pytest.mark.parametrize(("where", "attack"), [("listing", "bomb"), ("part", "bomb"), ("listing", "endless-names")])
def test_what_is_sent_beyond_bounds_is_not_kept(web: WebServer, where: str, attack: str) -> None:
    web.answers[STEP if where == "listing" else FILE], _ = (OF_LISTINGS if where == "listing" else OF_PARTS)[attack]
    process = started(web, IMPATIENT)
    assert peak(process) < MOST
    assert process.returncode == 2


NAMES = 300_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by Linux only")
def test_a_long_list_of_names_costs_no_request_each(web: WebServer) -> None:
    web.answers[STEP] = text(page([*(f"note{n}.txt" for n in range(NAMES)), *(f"layer.{n}.npy" for n in range(4))]))
    process = started(web)
    assert peak(process) < MOST
    assert process.returncode == 2  # nobody looked into them, and that is said
    assert len(web.requests) < 200


def test_names_of_which_nothing_can_be_had_take_no_memory(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GIVEN_UP", 64)
    names = [f"gone{n}.npy" for n in range(1_500)]
    web.answers[STEP] = text(page(names))
    place = reached(Path(f"{web.url}/run/step_1"))

    def refused() -> int:
        """How many cannot be looked at, opened or listed; nothing else looks for what is kept of that meanwhile."""
        count = 0
        for name in names:
            for asked in (opener.stat, opener.open_regular, opener.listdir):
                try:
                    asked(place / name)
                except OSError:  # noqa: PERF203 - each by itself
                    count += 1
        return count

    refused()
    tracemalloc.start()
    gc.disable()
    try:
        assert refused() == 3 * len(names)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        gc.enable()
        tracemalloc.stop()
    assert kept < 20 * len(names)
    assert len(web.requests) < 200


@pytest.mark.usefixtures("impatient")
def test_more_files_than_can_be_asked_for_are_a_doubt_with_their_number(web: WebServer, capsys: Capsys) -> None:
    web.answers[STEP] = text(page([*(f"note{n}.txt" for n in range(2000)), *(f"layer.{n}.npy" for n in range(4))]))
    answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
    assert answer.code == 2
    assert "2,000 more files" in answer.out + answer.err
    assert run(capsys, "check", f"{web.url}/run", "--no-cache", "--ignore", "*.txt").code == 0


def test_sizes_are_asked_of_what_is_read(web: WebServer) -> None:
    names = [f"a{n}" for n in range(1000)]
    write_arrays(web.folder / "many", {name: np.ones(2, "f4") for name in names})
    place = reached(Path(f"{web.url}/many"))
    heads = lambda: Counter(path for method, path in web.requests if method == "HEAD")  # noqa: E731 - asked twice
    assert len(opener.listdir(place)) == 1000
    assert not heads()
    opener.stat(place / "a500.npy")
    assert len(heads()) == 1  # who asks for one wants one
    for name in names:
        opener.stat(place / f"{name}.npy")
    assert heads() == {f"/many/{name}.npy": 1 for name in names}  # who asks on gets more at once, each only once


@pytest.mark.parametrize(
    "link",
    [
        *("../other/", "/", "/run", "//127.0.0.1/run/step_1/evil.npy", "http://[::", "..%2Fx.npy", "a%2Fb.npy"),
        *("%00x.npy", "%2e%2e/", ".%2e", "../../etc/passwd", "http://evil.example/run/step_1/evil.npy"),
    ],
)
def test_a_link_out_of_the_directory_is_no_name(web: WebServer, capsys: Capsys, link: str) -> None:
    names = [f"layer.{n}.npy" for n in range(4)]
    web.answers[STEP] = text(page([link, "?C=M;O=A", "#top", *names, "mailto:x@y", ".", "./"]))
    assert run(capsys, "check", f"{web.url}/run", "--no-cache").code == 0
    assert sorted(opener.listdir(reached(Path(f"{web.url}/run/step_1")))) == names


@pytest.mark.parametrize("start", ["./", "", "/run/step_1/", "//{host}/run/step_1/", "http://{host}/run/step_1/"])
def test_all_ways_to_write_a_link_mean_the_same(web: WebServer, start: str) -> None:
    start = start.format(host=web.url.removeprefix("http://"))
    web.answers[STEP] = text(
        f"<A class=x HREF='{start}a%20b.npy'>a</A><a href={start}sub/>sub</a><a title='>'\nhref=\"{start}c&amp;d\">"
    )
    with opener.scandir(reached(Path(f"{web.url}/run/step_1"))) as entries:
        assert {entry.name: entry.is_dir() for entry in entries} == {"a b.npy": False, "sub": True, "c&d": False}


class TestRedirects:
    """127.0.0.1 and localhost are two hosts."""

    @pytest.fixture
    def there(self, web: WebServer) -> str:
        return f"localhost:{web.server_address[1]}"

    @pytest.fixture(autouse=True)
    def moved(self, web: WebServer, there: str) -> None:
        """Whatever is asked of 127.0.0.1 is at the other one."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            if request.headers["Host"].startswith("127."):
                redirect(f"http://{there}")(request)
            else:
                del web.answers["/run"]
                request.do_GET() if request.command == "GET" else request.do_HEAD()  # type: ignore[attr-defined] # as WebServer's has them
                web.answers["/run"] = answer

        web.answers["/run"] = answer

    def test_one_to_another_host_is_refused_and_said(self, web: WebServer, capsys: Capsys, there: str) -> None:
        answer = run(capsys, "check", f"{web.url}/run/step_0", "--no-cache")
        assert answer.code == 2
        assert there in answer.err
        assert f"--redirect-to {there}" in answer.err
        assert "where:" in answer.err

    def test_it_is_followed_where_that_was_allowed(self, web: WebServer, capsys: Capsys, there: str) -> None:
        for host in (there, "LOCALHOST"):
            answer = run(capsys, "check", f"{web.url}/run", "--no-cache", "--redirect-to", host)
            assert answer.code == 0
            assert "12 tensors checked" in answer.out
        assert run(capsys, "check", f"{web.url}/run", "--no-cache").code == 2  # it is forgotten

    def test_every_command_and_the_api_that_open_urls_take_the_option(
        self, web: WebServer, capsys: Capsys, there: str
    ) -> None:
        url = f"{web.url}/run"
        for words in (("ls", "--formats", url), ("dump-config", "--like", url, "--yes")):
            refused = run(capsys, *words)
            assert refused.code == 2
            assert f"--redirect-to {there}" in refused.out + refused.err
            allowed = run(capsys, *words, "--redirect-to", there)
            assert "redirects to another host" not in allowed.out + allowed.err
        assert run(capsys, "ls", "--formats", url, "--redirect-to", there).code == 0
        allow_redirects(())
        with pytest.raises(TdbgError, match="redirects to another host"):
            DumpAnalyzer(url)
        with DumpAnalyzer(url, redirect_to=[there]) as analyzer:
            assert len(analyzer.select_tensors("")) == 12
        allow_redirects(())

    def test_another_port_is_another_host(self, web: WebServer, capsys: Capsys) -> None:
        web.answers["/run"] = redirect("http://127.0.0.1:9")
        answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
        assert answer.code == 2
        assert "--redirect-to 127.0.0.1:9" in answer.err


def test_one_within_the_host_is_followed(web: WebServer, capsys: Capsys) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.path = request.path.replace("/moved/", "/run/", 1)
        redirect("")(request)

    web.answers[r"/moved/"] = answer
    (web.folder / "moved").mkdir()
    answer_of_check = run(capsys, "check", f"{web.url}/moved", "--no-cache")
    assert answer_of_check.code == 0
    assert "12 tensors checked" in answer_of_check.out


def test_a_server_of_pythons_own_lists_and_sends_small_files(web: WebServer, capsys: Capsys) -> None:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(web.folder))  # type: ignore[arg-type] # as it comes

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        answer = run(capsys, "check", f"http://127.0.0.1:{server.server_address[1]}/run", "--no-cache")
        server.shutdown()
        thread.join()
    assert answer.code == 0
    assert "12 tensors checked" in answer.out


def test_nothing_more_is_asked_of_a_server_that_does_not_answer(
    web: WebServer, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.2)
    monkeypatch.setattr(remote, "GIVEN_UP", 3 * remote.SILENT)
    for step in range(3):
        write_arrays(web.folder / "run" / f"step_{step}", {f"more.{n}": np.ones(3, "f4") for n in range(40)})
    web.hang.add(r"\.npy")
    answer = run(capsys, "check", f"{web.url}/run", "--no-cache")
    assert answer.code == 2
    assert "all requests before it failed" in answer.out + answer.err
    assert len({path for _, path in web.requests if path.endswith(".npy")}) < 3 + 2 * remote.AT_ONCE
    web.hang.clear()
    monkeypatch.setattr(remote, "PATIENCE", 30.0)
    assert run(capsys, "check", f"{web.url}/run", "--no-cache").code == 0  # looked at anew


LOOK_UP = "import os, socket, time; socket.getaddrinfo = lambda *_, **__: (os.write(1, b'looks\\n'), time.sleep(60))"
WAITS = {
    "listing": (r"GET /run/$", sends(lambda: iter(lambda: b"<", b""), pause=0.05)),
    "names": (r"GET /run/$", OF_LISTINGS["endless-names"][0]),
    "sizes": (r"HEAD .*npy", lambda request: cast("WebServer", request.server).over.wait(30)),
    "parts": (r"GET .*npy", OF_PARTS["drips"][0]),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("waits_for", WAITS)
def test_signals_end_whatever_is_waited_for(web: WebServer, waits_for: str, number: signal.Signals) -> None:
    asked = threading.Event()
    pattern, attack = WAITS[waits_for]

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        attack(request)

    web.answers[pattern] = answer
    process = started(web)
    assert asked.wait(60)
    ends_at(process, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_look_up_of_an_address(web: WebServer, number: signal.Signals) -> None:
    web.host = "localhost"
    process = started(web, LOOK_UP)
    assert process.stdout is not None
    assert process.stdout.readline() == "looks\n"
    ends_at(process, number)


def ends_at(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Sends a signal, of which the process ends long before its patience does, and says so.

    Two seconds on a machine that is not busy; nothing that is waited for here ends before 20.
    """
    process.send_signal(number)
    try:
        words = "".join(process.communicate(timeout=5))
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "interrupted" in words
