"""Files of torch.save that were damaged as a whole: whoever looks at them is told, wherever a tensor was touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.stats.test_random_objects import judged  # noqa: E402 - see above
from tui_debugger.model import ReadSpec  # noqa: E402
from tui_debugger.stats.npy import open_array  # noqa: E402
from tui_debugger.stats.torch_file import read_tree  # noqa: E402

PAGE = 4096


def content() -> dict[str, Any]:
    """Tensors of several sizes without a zero."""
    made = torch.Generator().manual_seed(5)
    return {
        "small": {str(size): torch.rand(size, generator=made) + 1 for size in (1, 3, 50, 700, 1500)},
        "big": torch.rand(300, 20, generator=made) + 1,
        "view": (torch.rand(40, 50, generator=made) + 1).T,
        "array": np.arange(1, 2000.0),
    }


@pytest.fixture(params=["zip", "legacy"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    torch.save(content(), tmp_path / "x.pt", _use_new_zipfile_serialization=request.param == "zip")
    return tmp_path / "x.pt"


def damages(whole: bytes) -> Iterator[tuple[str, bytes]]:
    yield "emptied", b""
    yield "zeros", bytes(len(whole))
    for end in range(1, len(whole), len(whole) // 17):
        yield f"cut at {end}", whole[:end]


def test_a_file_that_was_emptied_or_cut_is_never_clean(path: Path) -> None:
    assert judged(path) == {}
    for what, damaged in damages(path.read_bytes()):
        path.unlink()
        path.write_bytes(damaged)
        assert judged(path), what


def test_a_page_of_zeros_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(content(), path)
    whole, good = path.read_bytes(), values(path)
    for start in range(0, len(whole), PAGE):
        path.unlink()
        path.write_bytes(whole[:start] + bytes(len(whole[start : start + PAGE])) + whole[start + PAGE :])
        assert judged(path) or values(path) == good, f"page at {start}"


def values(path: Path) -> dict[str, bytes]:
    return {
        member: open_array(ReadSpec(str(path), "pt", member=member)).tobytes()
        for member in read_tree(str(path)).members
    }


def test_zeros_that_were_saved_are_zeros(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({str(size): torch.zeros(size) for size in (1, 100, 1024, 5000)}, path)
    assert judged(path) == {}


def test_an_archive_without_checksums_is_read(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.zeros(5000)}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert judged(tmp_path / "x.pt") == {}
