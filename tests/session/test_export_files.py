"""Source excerpts and exports: what is read from and written to the user's disk."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tui_debugger.errors import TdbgError
from tui_debugger.model import Frame
from tui_debugger.session.export_files import save_npy
from tui_debugger.session.session import mapped_paths, read_excerpt


def test_an_excerpt_shows_the_lines_around_a_frame(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("\n".join(f"line {n}" for n in range(1, 21)))
    excerpt = read_excerpt(Frame("/far/away/train.py", 10, "x"), [("/far/away", str(tmp_path))], 2)
    assert excerpt is not None
    assert (excerpt.first, excerpt.focus, excerpt.lines) == (8, 10, tuple(f"line {n}" for n in range(8, 13)))


def test_control_characters_of_a_source_never_reach_the_screen(tmp_path: Path) -> None:
    source = tmp_path / "evil.py"
    source.write_bytes(b"a = '\x1b[2J\xff'\n")
    excerpt = read_excerpt(Frame(str(source), 1, ""), [], 0)
    assert excerpt is not None
    assert "\x1b" not in excerpt.lines[0]


@pytest.mark.parametrize("path", ["/does/not/exist.py", "", "/", "\0"])
def test_a_missing_source_has_no_excerpt(path: str) -> None:
    assert read_excerpt(Frame(path, 1, ""), [], 3) is None


def test_a_prefix_maps_whole_components_only() -> None:
    assert mapped_paths("/data/runs/t.py", [("/data/run", "/here")]) == [Path("/data/runs/t.py")]
    assert mapped_paths("/data/run/t.py", [("/data/run/", "/here")])[0] == Path("/here/t.py")


def test_a_tensor_is_written_once_and_outside_the_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    written = save_npy(values, tmp_path / "out", dump)
    assert written.name == "out.npy"
    assert np.array_equal(np.load(written), values)
    with pytest.raises(TdbgError, match="exists"):
        save_npy(values, written, dump)
    with pytest.raises(TdbgError, match="never written"):
        save_npy(values, dump / "sub.npy", dump)
    with pytest.raises(TdbgError, match="could not be written"):
        save_npy(values, tmp_path / "missing" / "x.npy", dump)


def test_types_that_npy_cannot_name_are_written_as_float32(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16)
    loaded = np.load(save_npy(values, tmp_path / "b.npy", tmp_path / "dump"))
    assert loaded.dtype == np.float32
    assert loaded.tolist() == [1.5, -2.0]
