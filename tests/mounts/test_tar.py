"""A tar is read where it lies, as ``tar -x`` would have it; what nobody who packs a dump makes is refused."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.mounts.places import pack, tar_of
from tests.sources.arrays import write_arrays
from tui_debugger import opener
from tui_debugger.errors import NotADumpError
from tui_debugger.mounts import reached
from tui_debugger.sources import open_source
from tui_debugger.stats.npy import open_array

Capsys = pytest.CaptureFixture[str]
FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def npy(value: float = 1.0, count: int = 4) -> bytes:
    file = io.BytesIO()
    np.save(file, np.full(count, value, "f4"))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def good() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for step in range(2):
        for name in "abc":
            yield member(f"run/step_{step}/{name}.npy"), npy(step + 1.0)


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return tar_of(tmp_path / "dump.tar", good())


def files(tar: Path) -> dict[str, bytes]:
    """Everything in a tar as ``opener`` shows it."""
    found: dict[str, bytes] = {}
    waiting = [str(reached(tar))]
    while waiting:
        with opener.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append(entry.path)
                else:
                    found[os.path.relpath(entry.path, tar)] = opener.read_regular(entry.path, 1 << 20)
    return found


def unpacked(tar: Path, folder: Path) -> dict[str, bytes]:
    """Everything in it as it is unpacked."""
    folder.mkdir()
    subprocess.run(["tar", "xf", tar, "-C", folder], check=True)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", FORMS)
def test_it_has_what_unpacking_it_gives(tmp_path: Path, form: str) -> None:
    long = "/".join(["run", *(["d" * 60] * 3), "step_0"])
    longer = [] if form == "ustar" else [(member(f"run/{'n' * 240}.npy"), npy(3))]
    members = [
        *good(),
        (member(f"{long}/x.npy"), npy(2)),
        *longer,
        (member("run/ä.npy"), b""),
        (member("run/empty/", tarfile.DIRTYPE), b""),
    ]
    members.append((member("./run/./step_0/d.npy"), npy(4)))
    path = tar_of(tmp_path / "dump.tar", members, FORMS[form])
    assert files(path) == unpacked(path, tmp_path / "out")


def test_of_a_name_that_occurs_twice_the_last_one_counts(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "dump.tar", [*good(), (member("run/step_1/a.npy"), npy(7))])
    assert files(path) == unpacked(path, tmp_path / "out")
    assert files(path)["run/step_1/a.npy"] == npy(7)


def test_links_are_followed_inside(tmp_path: Path) -> None:
    links = [
        (member("run/step_2", tarfile.SYMTYPE, "step_1"), b""),
        (member("run/step_0/d.npy", tarfile.SYMTYPE, "../step_2/a.npy"), b""),
        (member("run/step_0/e.npy", tarfile.LNKTYPE, "run/step_1/b.npy"), b""),
    ]
    path = tar_of(tmp_path / "dump.tar", [*good(), *links])
    found = files(path)
    assert found["run/step_0/d.npy"] == found["run/step_0/e.npy"] == found["run/step_2/c.npy"] == npy(2)


def test_a_link_to_the_directory_above_is_no_endless_tree(tmp_path: Path, capsys: Capsys) -> None:
    path = tar_of(tmp_path / "dump.tar", [*good(), (member("run/step_0/up", tarfile.SYMTYPE, ".."), b"")])
    assert run(capsys, "check", path, "--no-cache").code in {0, 2}


HOSTILE = {
    "above": (member("run/../../x.npy"), "leads out of it"),
    "absolute": (member("/run/x.npy"), "leads out of it"),
    "link out": (member("run/x.npy", tarfile.SYMTYPE, "../../../etc/passwd"), "what is not in it"),
    "absolute link": (member("run/x.npy", tarfile.SYMTYPE, "/etc/passwd"), "what is not in it"),
    "dangling": (member("run/step_3", tarfile.SYMTYPE, "nowhere"), "what is not in it"),
    "circle": (member("run/x", tarfile.SYMTYPE, "x"), "what is not in it"),
    "hard link out": (member("run/x.npy", tarfile.LNKTYPE, "../../etc/passwd"), "leads out of it"),
    "hard link nowhere": (member("run/x.npy", tarfile.LNKTYPE, "run/none.npy"), "what is not in it"),
    "file and directory": (member("run/step_0"), "a directory and for something else"),
    "below a file": (member("run/step_0/a.npy/x.npy"), "a directory and for something else"),
    "long name": (member("run/" + "n" * 5000), "longer than"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_nobody_packs_is_refused(tmp_path: Path, capsys: Capsys, what: str) -> None:
    info, why = HOSTILE[what]
    path = tar_of(tmp_path / "dump.tar", [*good(), (info, b"")])
    answer = run(capsys, "check", path)
    assert answer.code == 2
    assert why in answer.err
    assert str(path) in answer.err
    assert "do:" in answer.err


@pytest.mark.parametrize("end", [10, 512, 700, 1500, 4000, -1024, -1500])
def test_a_cut_one_is_refused_wherever_it_ends(capsys: Capsys, tar: Path, end: int) -> None:
    whole = tar.read_bytes().rstrip(b"\0")
    whole += bytes(-len(whole) % 512)  # without its end mark
    tar.write_bytes(whole[:end])
    answer = run(capsys, "check", tar)
    assert answer.code == 2
    assert "is cut" in answer.err
    tar.write_bytes(whole)
    assert "is cut" in run(capsys, "check", tar).err


def test_behind_its_end_are_zeros_only(capsys: Capsys, tar: Path) -> None:
    whole = tar.read_bytes()
    tar.write_bytes(whole + bytes(1 << 21))
    assert run(capsys, "check", tar, "--no-cache").code == 0
    tar.write_bytes(whole + bytes(1 << 21) + b"x")
    answer = run(capsys, "check", tar, "--no-cache")
    assert answer.code == 2
    assert "end mark" in answer.err


def test_a_page_of_zeros_over_a_header_is_no_end(capsys: Capsys, tar: Path) -> None:
    whole = tar.read_bytes()
    with tarfile.open(tar) as archive:
        headers = [info.offset for info in archive]
    for at in headers:
        tar.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
        assert run(capsys, "check", tar, "--no-cache").code == 2


@pytest.mark.parametrize("at", [0, 124, 148, 156, 600])
def test_a_damaged_one_is_refused(tar: Path, at: int) -> None:
    content = bytearray(tar.read_bytes())
    where = at if at < 512 else content.index(b"run/step_1")
    content[where] ^= 0x15
    tar.write_bytes(content)
    with pytest.raises(NotADumpError, match=r"is no tar|is damaged|damaged header"):
        reached(tar)


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_no_device_is_opened(tmp_path: Path, capsys: Capsys, kind: bytes) -> None:
    path = tar_of(tmp_path / "dump.tar", [*good(), (member("run/step_1/d.npy", kind), b"")])
    assert run(capsys, "check", path, "--no-cache").code == 2


def test_a_sparse_file_is_unreadable(tmp_path: Path, capsys: Capsys) -> None:
    write_arrays(tmp_path / "run" / "step_0", {"a": np.ones(4, "f4")})
    hole = tmp_path / "run" / "step_0" / "hole.npy"
    hole.write_bytes(npy(count=1 << 20)[:128])
    os.truncate(hole, 128 + (1 << 22))
    for form in ("gnu", "posix"):
        subprocess.run(
            ["tar", "--sparse", f"--format={form}", "-cf", tmp_path / f"{form}.tar", "-C", tmp_path, "run"], check=True
        )
        answer = run(capsys, "check", tmp_path / f"{form}.tar", "--no-cache")
        assert answer.code == 2, form
        assert "1 unreadable" in answer.out


@pytest.mark.parametrize(
    ("suffix", "command"),
    [
        (".tar.gz", "tar xzf"),
        (".tgz", "tar xzf"),
        (".tar.xz", "tar xJf"),
        (".tar.bz2", "tar xjf"),
        (".tar.zst", "tar --zstd -xf"),
    ],
)
def test_a_compressed_one_is_refused_with_the_command_that_unpacks_it(
    tmp_path: Path, capsys: Capsys, suffix: str, command: str
) -> None:
    path = tmp_path / f"dump{suffix}"
    path.write_bytes(b"\x1f\x8b")
    for words in (("check",), ("ls", "--formats")):
        answer = run(capsys, *words, path)
        assert answer.code == 2
        assert "a compressed tar cannot be read where it lies" in answer.err
        assert f"{command} dump{suffix}" in answer.err


def test_a_directory_that_is_called_like_one_is_a_directory(tmp_path: Path, capsys: Capsys) -> None:
    write_arrays(tmp_path / "dump.tar" / "step_0", {"a": np.ones(4, "f4")})
    assert run(capsys, "check", tmp_path / "dump.tar", "--no-cache").code == 0


def test_no_tar_at_all(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "x.tar").write_bytes(b"hello" * 1000)
    assert "is no tar, whatever its name says" in run(capsys, "check", tmp_path / "x.tar").err


def test_a_path_inside_is_a_path_inside(tar: Path) -> None:
    with closing(open_source(tar / "run" / "step_1")) as source:
        assert list(source.steps(0)) == [0, 1] or list(source.steps(0)) == [1]


def test_it_is_looked_at_again_when_it_was_written_anew(tar: Path, capsys: Capsys) -> None:
    assert run(capsys, "check", tar).code == 0
    tar_of(tar, [*good(), (member("run/step_1/a.npy"), npy(float("nan")))])
    assert run(capsys, "check", tar).code == 1
    tar_of(tar, good())
    assert run(capsys, "check", tar).code == 0


def test_what_is_read_while_it_is_written_is_unreadable(tar: Path) -> None:
    place = reached(tar) / "step_0" / "a.npy"
    with tar.open("ab") as file:
        file.write(bytes(512))
    with pytest.raises(OSError, match="written to meanwhile"):
        opener.open_regular(place)


def test_its_statistics_are_remembered(tar: Path, capsys: Capsys) -> None:
    old = time.time() - 100
    os.utime(tar, (old, old))
    assert run(capsys, "check", tar).code == 0
    assert run(capsys, "check", tar).code == 0
    tar.chmod(0o644)
    content = tar.read_bytes()
    tar.write_bytes(content.replace(npy(2.0)[128:], npy(float("nan"))[128:]))  # of the same size
    assert run(capsys, "check", tar).code == 1


def test_a_big_tensor_is_mapped_at_its_offset(tmp_path: Path) -> None:
    values = np.arange(1 << 21, dtype="f4")
    write_arrays(tmp_path / "run" / "step_0", {"small": np.ones(3, "f4"), "w": values})
    tar = pack(tmp_path / "run", tmp_path / "dump.tar")
    with closing(open_source(tar)) as source:
        table = source.tensors(0, 0)
        arrays = [open_array(table.spec(row)) for row in range(len(table))]
    big = next(array for array in arrays if array.size == values.size)
    assert np.array_equal(big, values)
    assert not big.flags.owndata


@pytest.mark.parametrize("thousands", [50, pytest.param(1000, marks=pytest.mark.thorough)])
def test_a_million_members(tmp_path: Path, thousands: int) -> None:
    """In seconds and some hundred MB."""
    path = tmp_path / "dump.tar"
    heads = [bytearray(member(f"run/step_0/{n:07}.npy").tobuf(tarfile.USTAR_FORMAT)) for n in range(1000)]
    with path.open("wb") as file:
        for thousand in range(thousands):
            for head in heads:
                digits = b"%04d" % thousand
                total = int(head[148:154], 8) + sum(digits) - sum(head[11:15])
                head[11:15], head[148:154] = digits, b"%06o" % total
            file.write(b"".join(heads))
        file.write(bytes(1024))
    code = (
        "import resource, sys, time; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from tui_debugger.mounts.tar import TarMount\n"
        "tar = TarMount.read(sys.argv[1]); print(len(tar.entries('run/step_0')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) == thousands * 1000


def test_names_with_more_directories_than_memory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(250):
            tar.addfile(member(f"{number}/{'d/' * 1000}x"))
    with pytest.raises(NotADumpError, match="directories"):
        reached(path)
