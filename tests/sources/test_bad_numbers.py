"""A number that is not finite is found or a doubt wherever it lies; a healthy one, or one in settings, is neither."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.cli.running import run  # noqa: E402 - see above
from tests.trees.layouts import LAYOUTS, megatron, sglang_dumper, sglang_passes  # noqa: E402

Capsys = pytest.CaptureFixture[str]
BAD: dict[str, Any] = {"NaN": {"loss": math.nan}, "Inf": {"losses": [1.0, math.inf]}}
HEALTHY: dict[str, Any] = {"loss": 0.5, "max_grad_norm": math.inf}


def code(capsys: Capsys, path: Path) -> int:
    return run(capsys, "check", path, "--watch", "TO", "--no-cache").code


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["state.pkl", "state.pt"])
def test_in_a_file_beside_the_steps(tmp_path: Path, capsys: Capsys, layout: str, name: str) -> None:
    LAYOUTS[layout](tmp_path / "run")
    write = torch.save if name.endswith(".pt") else lambda value, path: path.write_bytes(pickle.dumps(value))
    write(HEALTHY, tmp_path / "run" / name)
    assert code(capsys, tmp_path / "run") == 0
    for value in BAD.values():
        write(value, tmp_path / "run" / name)
        assert code(capsys, tmp_path / "run") in {1, 2}


@pytest.mark.parametrize("at", [0, -1], ids=["first", "last"])
class TestInFilesOfRecorders:
    """The first file of a name may not speak for the others."""

    @pytest.mark.parametrize("value", BAD.values(), ids=BAD)
    @pytest.mark.parametrize("writer", [sglang_passes, megatron])
    def test_beside_tensors(self, tmp_path: Path, capsys: Capsys, writer: Any, value: Any, at: int) -> None:
        writer(tmp_path / "run")
        path = sorted((tmp_path / "run").rglob("*.pt*"))[at]
        tensors = torch.load(path)
        torch.save({**tensors, **HEALTHY}, path)
        assert code(capsys, tmp_path / "run") == 0
        torch.save({**tensors, **value}, path)
        assert code(capsys, tmp_path / "run") == 1

    @pytest.mark.parametrize("value", BAD.values(), ids=BAD)
    def test_in_place_of_a_tensor_and_beside_it(self, tmp_path: Path, capsys: Capsys, value: Any, at: int) -> None:
        sglang_dumper(tmp_path / "run")
        path = sorted((tmp_path / "run").rglob("*.pt"))[at]
        assert code(capsys, tmp_path / "run") == 0
        torch.save({"value": value, "meta": {}}, path)
        assert code(capsys, tmp_path / "run") == 1
        torch.save({"value": torch.ones(2, 3), "meta": value}, path)
        assert code(capsys, tmp_path / "run") in {1, 2}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("distutils-precedence.pth", b"import os; enabled = True\n"),
        ("editable.pth", b"/home/someone/src\n"),
        ("long.pth", b"some words\n" * 20_000),
    ],
)
def test_paths_of_packages_are_called_as_files_of_torch_are(
    tmp_path: Path, capsys: Capsys, name: str, content: bytes
) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "w.pt")
    (tmp_path / name).write_bytes(content)
    assert code(capsys, tmp_path) == 0
    for damaged in (content + b"\0\1", b"\x80\2" + content):
        (tmp_path / name).write_bytes(damaged)
        assert code(capsys, tmp_path) == 2


def test_a_page_that_was_fetched_in_place_of_a_file_is_a_doubt(tmp_path: Path, capsys: Capsys) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "w.pt")
    (tmp_path / "model.pt").write_text("<html><body>404 Not Found</body></html>")
    assert code(capsys, tmp_path) == 2
