"""URLs as people give them: what is read, what is refused, and what is only loaded for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.mounts.places import pack, to_memory
from tests.sources.arrays import write_arrays
from tui_debugger import opener
from tui_debugger.errors import TdbgError
from tui_debugger.mounts import is_url, reached
from tui_debugger.session.dumps import RecentDumps, overview

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    for step in range(2):
        write_arrays(tmp_path / "run" / f"step_{step}", {"a": np.full(4, step + 1, "f4")})
    return tmp_path / "run"


def test_all_ways_to_write_one_name_the_same_place(arrays: Path) -> None:
    given = str(to_memory(arrays))
    rest = given.removeprefix("memory:/").lstrip("/")
    assert {reached(Path(f"{start}{rest}")) for start in ("memory://", "memory:/", "/memory:/")} == {
        Path(f"/memory:/{rest}")
    }


@pytest.mark.parametrize("path", ["C:/x", "a:b", "runs/s3:/x", "./http:x", "rank_0:/x y"])
def test_what_is_no_url_is_left_alone(path: str) -> None:
    assert not is_url(path)
    assert reached(Path(path)) == Path(path)


def test_a_directory_that_is_called_like_one_is_a_directory(
    arrays: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    (arrays.parent / "s3:").mkdir()
    arrays.rename(arrays.parent / "s3:" / "run")
    monkeypatch.chdir(arrays.parent)
    assert run(capsys, "check", "s3:/run", "--no-cache").code == 0


@pytest.mark.parametrize(
    ("url", "what", "hint"),
    [
        ("gs://bucket/run", "gs:// is not read", "s3://"),
        ("http://me:secret@host/run", "password", "~/.netrc"),
        ("memory://nobody/wrote/this", "No such file or directory", "nothing lies there"),
    ],
)
def test_what_cannot_be_opened_is_said_in_three_parts(capsys: Capsys, url: str, what: str, hint: str) -> None:
    answer = run(capsys, "check", url)
    assert answer.code == 2
    assert what in answer.err
    assert hint in answer.err
    assert "where:" in answer.err
    assert "secret" not in answer.err


@pytest.mark.parametrize("scheme", ["s3", "hf", "http", "https", "ssh", "sftp", "memory"])
def test_without_the_extra_it_is_named(scheme: str) -> None:
    code = (
        "import sys\nfor name in ('fsspec', 's3fs', 'aiohttp', 'paramiko'): sys.modules[name] = None\n"
        "from tui_debugger.cli.main import main\n"
        f"sys.exit(main(['check', '{scheme}://host/run']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"reading {scheme}:// needs a package that is not installed" in done.stderr
    assert f"where: {scheme}://host" in done.stderr
    assert "pip install 'tui-debugger[remote]'" in done.stderr


def test_nothing_is_loaded_for_a_directory(arrays: Path) -> None:
    code = (
        "import sys\nfrom tui_debugger.cli.main import main\nmain(['check', sys.argv[1], '--no-cache'])\n"
        "print(*(name for name in sys.modules if 'mounts' in name or name in ('fsspec', 'aiohttp', 'tarfile')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(arrays)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "tui_debugger.mounts.refusals tui_debugger.mounts"


def test_recent_dumps_in_a_tar_and_at_a_url_are_not_gone(arrays: Path, tmp_path: Path) -> None:
    recent = RecentDumps()
    tar = pack(arrays, tmp_path / "dump.tar")
    for path in (f"{tar}/run", "/s3:/bucket/run", str(tmp_path / "nothing.tar")):
        recent.opened(path)
    empty = tmp_path / "empty"
    empty.mkdir()
    *_, last = overview(empty, recent)
    gone = {each.path: each.gone for each in last.dumps}
    assert gone == {f"{tar}/run": False, "/s3:/bucket/run": False, str(tmp_path / "nothing.tar"): True}


async def test_the_screen_opens_one(arrays: Path) -> None:
    from tests.tui.driver import opened

    write_arrays(arrays / "step_2", {"a": np.full(4, np.nan, "f4")})
    async with opened(to_memory(arrays), size=(120, 40)) as screen:
        await screen.until(lambda: "First known bad at step 2: a, NaN 4 of 4" in screen.text)


def test_commands_take_one(arrays: Path, tmp_path: Path, capsys: Capsys) -> None:
    url = to_memory(arrays)
    for words in (
        ("ls", url),
        ("ls", "--steps", url),
        ("stat", url),
        ("origin", url),
        ("show", url, "a"),
        ("ls", "--formats", url),
        ("health", url),
    ):
        assert run(capsys, *words).code in {0, 1}, words
    assert run(capsys, "diff", url, "--with", arrays).code in {0, 1, 2}
    assert run(capsys, "convert", url, "-o", tmp_path / "out").code == 0
    assert len(list((tmp_path / "out").rglob("*.npy"))) == 2


def test_a_name_that_is_hostile_is_refused() -> None:
    with pytest.raises(TdbgError, match="cannot be read"):
        reached(Path("memory://x/../../etc"))
    assert opener.is_mounted("/memory:/x/../../etc/passwd")
    assert not opener.exists("/memory:/x/../../etc/passwd")
