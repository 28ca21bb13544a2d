"""Every file of a model, every byte of a file and every name for one is accounted for: read, or said not to be."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.cli.running import run  # noqa: E402 - see above
from tests.sources.arrays import write_safetensors  # noqa: E402
from tests.sources.checkpoints import INDEX, cuts_of, write_checkpoint  # noqa: E402
from tests.sources.test_tensor_files import BAD, ONES, held, parts  # noqa: E402
from tui_debugger.sources import open_source  # noqa: E402

Capsys = pytest.CaptureFixture[str]
PLACES = pytest.mark.parametrize("place", ["", "checkpoint-3", "checkpoint-3/unet"])
"""Where the files of a model lie: alone, in a step, below it."""


def checked(capsys: Capsys, root: Path) -> int:
    return run(capsys, "check", root, "--watch", "TO", "--no-cache").code


def write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        write_safetensors(path, values)
    else:
        torch.save({name: torch.from_numpy(np.array(value)) for name, value in values.items()}, path)


def model(folder: Path, start: str = "model", end: str = ".safetensors") -> list[Path]:
    """A model in two files, and their index."""
    files = [folder / f"{start}-0000{number}-of-00002{end}" for number in (1, 2)]
    for path, name in zip(files, "ab", strict=True):
        write(path, {f"{name}.weight": ONES})
    names = {f"{name}.weight": path.name for path, name in zip(files, "ab", strict=True)}
    (folder / f"{start}{end}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return files


class TestFilesOfAModel:
    @PLACES
    @pytest.mark.parametrize(
        ("start", "end"),
        [
            ("model", ".safetensors"),
            ("diffusion_pytorch_model", ".safetensors"),
            ("adapter_model", ".safetensors"),
            ("pytorch_model", ".bin"),
        ],
    )
    def test_a_file_that_is_missing(self, tmp_path: Path, capsys: Capsys, place: str, start: str, end: str) -> None:
        files = model(tmp_path / place, start, end)
        assert parts(open_source(tmp_path)) == {}
        assert checked(capsys, tmp_path) == 0
        files[1].unlink()
        where = str(files[1].relative_to(tmp_path))
        assert parts(open_source(tmp_path)) == {where: "a file of the model that is missing"}
        assert checked(capsys, tmp_path) == 2

    @PLACES
    def test_all_files_are_missing(self, tmp_path: Path, place: str) -> None:
        for path in model(tmp_path / place):
            path.unlink()
        (tmp_path / "checkpoint-3").mkdir(exist_ok=True)
        np.save(tmp_path / "checkpoint-3/x.npy", ONES)
        assert parts(open_source(tmp_path))

    @PLACES
    def test_a_tensor_that_its_file_lacks(self, tmp_path: Path, place: str) -> None:
        files = model(tmp_path / place)
        write(files[0], {"c.weight": ONES})
        assert parts(open_source(tmp_path)) == {
            f"{files[0].relative_to(tmp_path)}:a.weight": "a tensor of the model that its file lacks"
        }

    @PLACES
    def test_a_file_that_the_index_does_not_name(self, tmp_path: Path, place: str) -> None:
        files = model(tmp_path / place)
        (tmp_path / place / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a.weight": files[0].name}})
        )
        assert parts(open_source(tmp_path)) == {
            str(files[1].relative_to(tmp_path)): "a file of the model that its index does not name"
        }

    @PLACES
    @pytest.mark.parametrize("of", ["-00001-of-00003", "-00000-of-00003", "_1_of_3"])
    def test_one_of_several_without_an_index(self, tmp_path: Path, capsys: Capsys, place: str, of: str) -> None:
        path = tmp_path / place / f"model{of}.safetensors"
        write(path, {"a.weight": ONES})
        others = [name for name in parts(open_source(tmp_path)) if name.endswith(".safetensors")]
        assert len(others) == 2
        assert checked(capsys, tmp_path) == 2
        for number, name in enumerate(others):
            write(tmp_path / name, {f"b{number}.weight": ONES})
        assert parts(open_source(tmp_path)) == {}
        assert checked(capsys, tmp_path) == 0

    def test_a_number_of_files_that_nobody_has(self, tmp_path: Path) -> None:
        write(tmp_path / "step_1/model-00001-of-99999.safetensors", {"a.weight": ONES})
        assert len(parts(open_source(tmp_path))) == 21

    def test_two_models_in_one_directory(self, tmp_path: Path) -> None:
        model(tmp_path / "step_1", "adapter_model")
        shutil.copytree(tmp_path / "step_1", tmp_path / "step_2")
        write(tmp_path / "step_2/head-00001-of-00001.safetensors", {"c.weight": ONES})
        assert parts(open_source(tmp_path)) == {}


class TestDistributedCheckpoints:
    VALUES = {"w": np.ones((4, 6)), "b": np.ones(3)}  # noqa: RUF012 - never changed

    def checkpoint(self, root: Path, **objects: Any) -> Path:
        cuts = {"w": cuts_of((4, 6), [[2], []]), "b": cuts_of((3,), [[]])}
        write_checkpoint(root / "step_1", self.VALUES, cuts, objects)
        return root

    def test_a_healthy_one(self, tmp_path: Path, capsys: Capsys) -> None:
        root = self.checkpoint(tmp_path / "run", lr=0.1, betas=(0.9, 0.999), name="adam", state=[torch.ones(2)])
        assert parts(open_source(root)) == {}
        assert held(open_source(root)) == {(0, 1): ["b:out:0", "state/0:out:0", "w:out:0"]}
        assert checked(capsys, root) == 0

    def test_tensors_in_objects_are_judged(self, tmp_path: Path, capsys: Capsys) -> None:
        root = self.checkpoint(tmp_path / "run", state=({"x": torch.ones(2)}, torch.from_numpy(BAD)))
        assert checked(capsys, root) == 1

    def test_an_object_that_is_not_understood(self, tmp_path: Path, capsys: Capsys) -> None:
        made = type("Made", (), {"__reduce__": lambda _: (os.getcwd, ())})()
        root = self.checkpoint(tmp_path / "run", state=[torch.ones(2), made])
        assert checked(capsys, root) == 2

    def test_a_part_that_the_index_does_not_name(self, tmp_path: Path, capsys: Capsys) -> None:
        root = self.checkpoint(tmp_path / "run")
        shutil.copy(root / "step_1/__0_0.distcp", root / "step_1/__7_0.distcp")
        assert parts(open_source(root)) == {
            "step_1/__7_0.distcp": "a part that the index of the checkpoint does not name"
        }
        assert checked(capsys, root) == 2

    def test_a_part_that_is_missing(self, tmp_path: Path, capsys: Capsys) -> None:
        root = self.checkpoint(tmp_path / "run")
        np.save(root / "step_1/x.npy", ONES)
        for name in ("__1_0.distcp", "__0_0.distcp"):
            (root / "step_1" / name).unlink()
            assert parts(open_source(root))[f"step_1/{name}"] == "a part of the checkpoint that is missing"
            assert checked(capsys, root) == 2

    @pytest.mark.parametrize("more", [b"\0", b"PK\3\4", bytes(4096)])
    def test_bytes_that_the_index_does_not_name(self, tmp_path: Path, capsys: Capsys, more: bytes) -> None:
        root = self.checkpoint(tmp_path / "run")
        with (root / "step_1/__0_0.distcp").open("ab") as file:
            file.write(more)
        assert "does not name" in parts(open_source(root))["step_1/__0_0.distcp"]
        assert checked(capsys, root) == 2

    def test_an_index_of_fewer_tensors(self, tmp_path: Path) -> None:
        root = self.checkpoint(tmp_path / "run")
        index = pickle.loads((root / "step_1" / INDEX).read_bytes())  # noqa: S301 - written above
        del index.state_dict_metadata["b"]
        index.storage_data = {key: info for key, info in index.storage_data.items() if key.fqn != "b"}
        (root / "step_1" / INDEX).write_bytes(pickle.dumps(index))
        assert "does not name" in parts(open_source(root))["step_1/__0_0.distcp"]


def saved(value: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **how)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def safetensors(array: Any) -> bytes:
    text = json.dumps({"x": {"dtype": "F64", "shape": [len(array)], "data_offsets": [0, 8 * len(array)]}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(array.astype("f8"))


NAMES: dict[str, Callable[[Any], bytes]] = {
    "mm_projector.bin": lambda array: saved({"x": torch.from_numpy(array)}),
    "old.bin": lambda array: saved({"x": torch.from_numpy(array)}, _use_new_zipfile_serialization=False),
    "best.ckpt": lambda array: saved({"x": torch.from_numpy(array)}),
    "checkpoint.pth.tar": lambda array: saved({"x": torch.from_numpy(array)}),
    "x.PT": lambda array: saved({"x": torch.from_numpy(array)}),
    "x.pkl": lambda array: saved({"x": torch.from_numpy(array)}),
    "x.NPY": npy,
    "x.Npz": lambda array: npz(x=array),
    "arrays.pt": lambda array: npz(x=array),
    "array.dat": npy,
    "x.SAFETENSORS": safetensors,
    "other.bin": safetensors,
    "other.pth": safetensors,
}
"""Files whose names do not say how they are read, or say something wrong."""


@pytest.mark.parametrize("beside", ["model.safetensors", "step_1/model.safetensors"])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_read(tmp_path: Path, capsys: Capsys, beside: str, name: str) -> None:
    write(tmp_path / beside, {"w": ONES})
    path = (tmp_path / beside).with_name(name)
    path.write_bytes(NAMES[name](ONES.reshape(-1).astype(np.float64)))
    assert len(next(iter(held(open_source(tmp_path)).values()))) == 2
    assert parts(open_source(tmp_path)) == {}
    assert checked(capsys, tmp_path) == 0
    path.write_bytes(NAMES[name](BAD))
    assert checked(capsys, tmp_path) == 1


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("args.pkl", pickle.dumps({"lr": 0.1}), 0),
        ("training_args.bin", saved({"lr": 0.1}), 0),
        ("tokens.bin", np.arange(1, 999, dtype=np.uint16).tobytes(), 0),
        ("words.index", b"a b c\n", 0),
        ("mm_projector.bin", b"", 2),
        ("mm_projector.bin", bytes(5000), 2),
        ("x.pkl", pickle.dumps([BAD])[:40], 2),
        ("model.h5", b"\x89HDF\r\n\x1a\n" + bytes(99), 2),
        ("model.onnx", b"", 2),
        ("model.gguf", b"GGUF" + bytes(99), 2),
    ],
)
def test_what_is_not_read_is_said_and_what_is_something_else_is_not(
    tmp_path: Path, capsys: Capsys, name: str, content: bytes, code: int
) -> None:
    write(tmp_path / "step_1/model.safetensors", {"w": ONES})
    (tmp_path / "step_1" / name).write_bytes(content)
    assert checked(capsys, tmp_path) == code
    assert bool(parts(open_source(tmp_path))) == bool(code)


DENSE = np.random.default_rng(0).normal(size=2500)
PAGE = 4096
DAMAGED = {
    "x.npy": npy,
    "x.npz": lambda array: npz(x=array, y=array),
    "x.pt": lambda array: saved({"x": torch.from_numpy(array), "y": torch.from_numpy(array + 1)}),
    "mm_projector.bin": lambda array: saved({"x": torch.from_numpy(array)}),
    "old.pth": lambda array: saved({"x": torch.from_numpy(array)}, _use_new_zipfile_serialization=False),
    "x.safetensors": safetensors,
}
"""Files of more than four pages."""
WITHOUT_CHECKSUMS = ("x.npy", "x.safetensors", "old.pth")
"""Nothing tells zeros that are values from a page of them that was lost: only the first page can be told."""


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_never_clean(tmp_path: Path, capsys: Capsys, name: str) -> None:
    whole = DAMAGED[name](DENSE)
    path = tmp_path / "step_1" / name
    write(tmp_path / "step_1/model.safetensors", {"w": ONES})
    path.write_bytes(whole)
    assert checked(capsys, tmp_path) == 0
    for content in (b"", bytes(len(whole)), whole[: len(whole) // 2], whole[:-1], whole[:PAGE]):
        path.write_bytes(content)
        assert checked(capsys, tmp_path) == 2, len(content)
    pages = range(-(-len(whole) // PAGE))
    for page in pages[:1] if name in WITHOUT_CHECKSUMS else pages:
        zeros = whole[: page * PAGE] + bytes(min(PAGE, len(whole) - page * PAGE)) + whole[(page + 1) * PAGE :]
        path.write_bytes(zeros)
        assert checked(capsys, tmp_path) == 2, page


def test_a_damaged_distributed_checkpoint_is_never_clean(tmp_path: Path, capsys: Capsys) -> None:
    values = {"w": DENSE.reshape(50, 50), "b": DENSE[:9]}
    write_checkpoint(tmp_path / "step_1", values, {"w": cuts_of((50, 50), [[20], []]), "b": cuts_of((9,), [[]])})
    assert checked(capsys, tmp_path) == 0
    for path in sorted((tmp_path / "step_1").iterdir()):
        whole = path.read_bytes()
        pages = [
            whole[: page * PAGE] + bytes(min(PAGE, len(whole) - page * PAGE)) + whole[(page + 1) * PAGE :]
            for page in range(-(-len(whole) // PAGE))
        ]
        for content in (b"", bytes(len(whole)), whole[: len(whole) // 2], *pages):
            path.write_bytes(content)
            assert checked(capsys, tmp_path) == 2, (path.name, len(content))
        path.write_bytes(whole)


def test_checksums_that_torch_was_told_not_to_write(tmp_path: Path, capsys: Capsys) -> None:
    wanted = torch.serialization.get_crc32_options()
    try:
        torch.serialization.set_crc32_options(False)
        write(tmp_path / "step_1/x.pt", {"x": np.zeros(5000)})
    finally:
        torch.serialization.set_crc32_options(wanted)
    assert checked(capsys, tmp_path) == 0
