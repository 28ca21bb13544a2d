"""What the bytes of a file tell: tensors of which format, plainly something else, nothing, or not enough."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import pickle
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ascend_files
from tests.sources.arrays import write_safetensors
from tui_debugger.stats import npy
from tui_debugger.stats.formats import LOOKED_AT, TABLE, Holds, LookedAt, looked_at

BAD = np.array([1.0, np.nan], np.float32)


def look(content: bytes, name: str = "x") -> LookedAt:
    return looked_at(content[:LOOKED_AT], content[-LOOKED_AT:], len(content), name)


# -- files of tensors ------------------------------------------------------------------------------


def npy_file(array: Any = BAD) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz_file(packed: bool = False) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, x=BAD)
    return file.getvalue()


def torch_file(value: Any = None, **how: Any) -> bytes:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    file = io.BytesIO()
    torch.save({"x": torch.tensor([1.0, float("nan")])} if value is None else value, file, **how)
    return file.getvalue()


def safetensors_file(tmp_path: Path) -> bytes:
    write_safetensors(tmp_path / "x", {"x": BAD})
    return (tmp_path / "x").read_bytes()


def zip_of(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return file.getvalue()


def tar_of(**members: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def block(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2, len(value)]) + value


FLAX = b"\x81\xa6kernel\xc7\x19\x01\x93\x91\x02\xa7float32\xc4\x08" + BAD.tobytes()
ONNX = b"\x08\x08" + block(2, b"pytorch") + block(3, b"2.4") + block(7, block(5, block(9, BAD.tobytes())))
MINDSPORE = block(1, block(1, b"fc.weight") + block(2, b"\x08\x02" + block(2, b"Float32") + block(3, BAD.tobytes())))
INDEX_OF_TENSORFLOW = bytes(64) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"

FOUND: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "npy": ("an array of NumPy", lambda _: npy_file()),
    "npz": ("an archive of NumPy", lambda _: npz_file()),
    "npz, packed": ("an archive of NumPy", lambda _: npz_file(packed=True)),
    "npz in upper case": ("an archive of NumPy", lambda _: zip_of(X__NPY=npy_file())),
    "torch": ("a file of torch.save", lambda _: torch_file()),
    "torch before 1.6": (
        "a file of torch.save before 1.6",
        lambda _: torch_file(_use_new_zipfile_serialization=False),
    ),
    "torch with an array of NumPy only": ("a file of torch.save", lambda _: torch_file({"x": BAD})),
    "TorchScript": ("a TorchScript program", lambda _: zip_of(data__pkl=b"\x80\x02.", constants__pkl=b"\x80\x02).")),
    "safetensors": ("a file of safetensors", safetensors_file),
    "pickle": ("a pickle", lambda _: pickle.dumps({"lr": 0.1, "x": BAD})),
    "pickle of protocol 5": ("a pickle", lambda _: pickle.dumps([BAD], 5)),
    "pickle of protocol 0": ("a pickle", lambda _: pickle.dumps([BAD], 0)),
    "pickle behind a pickle": ("a pickle", lambda _: pickle.dumps({"lr": 0.1}) + pickle.dumps(BAD)),
    "pickle of a number of NumPy": ("a pickle", lambda _: pickle.dumps(np.float32("nan"))),
    "HDF5": ("HDF5", lambda _: b"\x89HDF\r\n\x1a\n" + bytes(100)),
    "HDF5 behind a block of the user's": ("HDF5", lambda _: bytes(2048) + b"\x89HDF\r\n\x1a\n" + bytes(100)),
    "GGUF": ("GGUF", lambda _: b"GGUF\3\0\0\0" + bytes(16)),
    "TensorFlow Lite": ("TensorFlow Lite", lambda _: b"\x1c\0\0\0TFL3" + bytes(16)),
    "NetCDF": ("NetCDF", lambda _: b"CDF\1" + bytes(16)),
    "MATLAB": ("MATLAB", lambda _: b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(90)),
    "MXNet": ("parameters of MXNet", lambda _: b"\x12\1\0\0\0\0\0\0" + bytes(16)),
    "Keras": ("HDF5 in a zip archive", lambda _: zip_of(config__json=b"{}", model__weights__h5=b"\x89HDF\r\n\x1a\n")),
    "flax": ("a checkpoint of flax", lambda _: FLAX),
    "ONNX": ("ONNX", lambda _: ONNX),
    "MindSpore": ("a checkpoint of MindSpore", lambda _: MINDSPORE),
    "Ascend": (
        "a file of an Ascend device",
        lambda _: ascend_files.file_bytes(outputs=[ascend_files.Written(np.ones((2, 3), np.float32))]),
    ),
    "OCDBT": ("an OCDBT store (orbax)", lambda _: b"\x0c\xdb\x3a\x2a" + bytes(40)),
    "FAISS": ("an index of FAISS", lambda _: b"IxFI" + struct.pack("<iq", 128, 2) + bytes(40)),
    "FAISS with lists": ("an index of FAISS", lambda _: b"IwPQ" + struct.pack("<iq", 1024, 2) + bytes(40)),
    "ExecuTorch": ("a program of ExecuTorch", lambda _: b"\x1c\0\0\0ET12" + bytes(16)),
    "TensorRT": ("an engine of TensorRT", lambda _: b"ftrt" + bytes(40)),
    "torch in gzip": ("a file of torch.save, compressed (gzip)", lambda _: gzip.compress(torch_file())),
    "npy in xz": ("an array of NumPy, compressed (xz)", lambda _: lzma.compress(npy_file())),
    "npy in bzip2": ("an array of NumPy, compressed (bzip2)", lambda _: bz2.compress(npy_file())),
    "pickle in zlib": ("a pickle, compressed (zlib)", lambda _: zlib.compress(pickle.dumps(BAD))),
    "npz in a tar": ("an archive of NumPy in a tar", lambda _: tar_of(a__txt=b"text", b=npz_file())),
    "npy in a tar in gzip": (
        "an array of NumPy in a tar, compressed (gzip)",
        lambda _: gzip.compress(tar_of(a__txt=b"text", b=npy_file())),
    ),
}
"""Files without a name that tells anything."""


@pytest.mark.parametrize("kind", FOUND)
def test_a_file_of_tensors_is_told_by_its_bytes(kind: str, tmp_path: Path) -> None:
    found = look(FOUND[kind][1](tmp_path))
    assert (found.holds, found.format) == (Holds.TENSORS, FOUND[kind][0])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a/.zarray", b'{"shape": [2]}', "an array of zarr"),
        ("zarr.json", b'{"zarr_format": 3, "node_type": "array"}', "an array of zarr"),
        ("manifest.ocdbt", bytes(64), "an OCDBT store (orbax)"),
        ("model.ckpt.data-00000-of-00002", BAD.tobytes(), "a checkpoint of TensorFlow"),
        ("model.ckpt.index", INDEX_OF_TENSORFLOW, "a checkpoint of TensorFlow"),
        ("model.onnx.data", BAD.tobytes(), "ONNX"),
        ("__0_0.distcp", BAD.tobytes(), "a part of a distributed checkpoint"),
        ("model.pt.zst", b"\x28\xb5\x2f\xfd" + bytes(40), "a file of torch.save, compressed (zstd)"),
        ("model.pt.zst", b"\x50\x2a\x4d\x18\4\0\0\0" + bytes(40), "a file of torch.save, compressed (zstd)"),
        ("x.NPY.lz4", b"\x04\x22\x4d\x18" + bytes(40), "an array of NumPy, compressed (lz4)"),
    ],
)
def test_formats_without_a_mark_go_by_their_names(name: str, content: bytes, expected: str) -> None:
    assert look(content, name) == LookedAt(Holds.TENSORS, expected)
    assert look(content, "x").holds is not Holds.TENSORS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("group1-shard1of1.bin", "weights of TensorFlow.js"),
        ("group1-shard2of3", "weights of TensorFlow.js"),
        ("model.engine", "an engine of TensorRT"),
        ("model.PLAN", "an engine of TensorRT"),
        ("inference.pdiparams", "parameters of PaddlePaddle"),
        ("net.caffemodel", "a model of Caffe"),
        ("net.mlmodel", "a model of Core ML"),
        ("yolo.weights", "raw values"),
        *((f"grads.{end}", "raw values") for end in ("f16", "bf16", "f32", "float32", "memmap", "mmap", "fbin")),
    ],
)
def test_bytes_without_a_mark_go_by_their_names_unless_they_are_text(name: str, expected: str) -> None:
    assert look(BAD.tobytes(), name) == LookedAt(Holds.TENSORS, expected)
    assert look(BAD.tobytes(), f"{name}x").holds is Holds.UNKNOWN
    if expected != "weights of TensorFlow.js":
        assert look(b"nothing but words\n", name).holds is Holds.NOTHING


@pytest.mark.parametrize(
    ("name", "beside", "content", "other"),
    [
        ("net.bin", "*.param", b"7767517\n3 3\n", b"[params]\nlr = 1\n"),
        ("net.bin", "*.xml", b'<?xml version="1.0"?>\n<net name="x" version="11">', b"<config/>"),
        ("x.bin", "*.json", b'{"shape": [2], "dtype": "float32"}', b'{"version": "1.0", "vocab": {}}'),
        ("x.dat", "*.json", b'{"dtype": "float32",\n "shape": [2]}', b'{"dtype": "float32"}'),
        ("x.raw", "*.json", b'{"dtype": "float32", "shape": [2]}', b"[]"),
        ("weight.bin", "../model.mlmodel", b"\x08\x07", None),
        ("weight.bin", "../model.mil", b"program(1.0)", None),
    ],
)
def test_bytes_that_a_file_beside_them_describes_are_tensors(
    name: str, beside: str, content: bytes, other: bytes | None
) -> None:
    def with_beside(bytes_beside: bytes | None, head: bytes = BAD.tobytes()) -> Holds:
        return looked_at(head, head, len(head), name, {beside: bytes_beside}.get).holds

    assert with_beside(content) is Holds.TENSORS
    assert with_beside(other) is Holds.UNKNOWN
    assert with_beside(None) is Holds.UNKNOWN
    assert with_beside(content, b"nothing but words\n") is Holds.NOTHING


@pytest.mark.parametrize("first", [256, 65536])
def test_numbers_that_begin_as_a_font_or_a_picture_does(first: int) -> None:
    content = struct.pack("<ii", first, 256) + bytes(40)
    assert look(content, "x.fbin").holds is Holds.TENSORS
    assert look(content, "x.ttf").holds is Holds.NOTHING


def test_whoever_reads_a_format_is_in_the_table_of_readers() -> None:
    assert {row.reader for row in TABLE} - {""} <= set(npy.FORMATS)
    assert look(npz_file(), "best.bin").reader == "npz"
    assert look(FLAX, "flax_model.msgpack").reader == ""


# -- what is plainly something else ----------------------------------------------------------------


def database(tmp_path: Path) -> bytes:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("create table t (x real)")
    connection.close()
    return (tmp_path / "x.db").read_bytes()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9000\n"
SETTINGS = {"lr": 0.1, "betas": (0.9, 0.999), "dtype": np.dtype("f4"), "type": np.float32, "backend": "torch", "n": 3}
EVENTS = struct.pack("<QI", 24, 1) + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2" + bytes(4)
HARMLESS: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "nothing": ("lock", lambda _: b""),
    "text": ("README.md", lambda _: "Größe: 3 µs\n".encode() * 40),
    "long text": ("train.log", lambda _: ("ä" * 99 + "\n").encode() * 999),
    "text with colours": ("out", lambda _: b"\x1b[32mok\x1b[0m\r 10%\b\b\n"),
    "JSON": ("config.json", lambda _: json.dumps({"torch_dtype": "float32"}).encode()),
    "a group of zarr": ("zarr.json", lambda _: b'{"zarr_format": 3, "node_type": "group"}'),
    "text that begins as a pickle": ("notes", lambda _: b"(define x 3)\n"),
    "a picture": ("loss.png", lambda _: b"\x89PNG\r\n\x1a\n" + bytes(40)),
    "a program": ("a.out", lambda _: b"\x7fELF\2\1\1" + bytes(40)),
    "compiled Python": ("x.cpython-311.pyc", lambda _: b"\xa7\r\r\n\0\0\0\0" + bytes(40)),
    "a database": ("runs.db", database),
    "events": ("events.out.tfevents.1", lambda _: EVENTS),
    "settings in a pickle": ("args.pkl", lambda _: pickle.dumps(SETTINGS)),
    "an infinite setting in a pickle": ("args.pkl", lambda _: pickle.dumps({"max_grad_norm": math.inf, "x": 0.1})),
    "settings in a pickle of text": ("args", lambda _: pickle.dumps({"lr": 0.1, "n": [1, 2]}, 0)),
    "settings that torch saved": ("training_args.bin", lambda _: torch_file({"lr": 0.1, "name": "adam"})),
    "settings that torch saved before 1.6": (
        "args.bin",
        lambda _: torch_file({"lr": 0.1}, _use_new_zipfile_serialization=False),
    ),
    "text in gzip": ("train.log.gz", lambda _: gzip.compress(b"step 1\n" * 99999)),
    "text in zstd": ("trace.json.zst", lambda _: b"\x28\xb5\x2f\xfd" + bytes(40)),
    "texts in a tar in xz": ("code.tar.xz", lambda _: lzma.compress(tar_of(a__py=b"x = 1\n", b__md=b"text\n"))),
    "texts in a zip archive": ("code.zip", lambda _: zip_of(a__py=b"x = 1\n", b__md=b"text\n")),
    "a wheel of Python": ("x.whl", lambda _: zip_of(**{"x__pth": b"import x", "x/__init____py": b""})),
    "a document of an office program": (
        "plan.xlsx",
        lambda _: zip_of(**{"[Content_Types]__xml": b"<x/>", "printerSettings1__bin": b"\0\1\2"}),
    ),
    "a file of safetensors without tensors": ("x", lambda _: (2).to_bytes(8, "little") + b"{}"),
    "what macOS keeps of a file": ("._x.npy", lambda _: b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(99)),
    "text about Iwate": ("notes", lambda _: b"IwatePrefecture\n"),
    "unfinished text": ("train.log.tmp", lambda _: b"step 1\n"),
    "an unfinished file without content": ("train.log.tmp", lambda _: b""),
    "the sum of a hidden file": (".model.pt.sha256", lambda _: b"8d969eef  model.pt\n"),
    "text in framed snappy": ("train.log.sz", lambda _: b"\xff\x06\0\0sNaPpY" + bytes(40)),
    "a pointer to text": ("README.md", lambda _: POINTER),
    "a pointer to a film": ("run.mp4", lambda _: POINTER),
    "a pointer to an empty file": ("weights", lambda _: POINTER.replace(b"size 9", b"size 0")),
    "a pointer to a picture": ("loss.png", lambda _: b"version https://git-lfs.github.com/spec/v1\n"),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_is_plainly_something_else_is_no_doubt(kind: str, tmp_path: Path) -> None:
    name, make = HARMLESS[kind]
    assert look(make(tmp_path), name).holds is Holds.NOTHING


def test_a_file_of_a_device_goes_by_its_name_too() -> None:
    assert look(bytes(40), "Add.Default_Add-op1.7.2.1700000000000500").reader == "ascend"


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_nan_among_numbers_is_something(protocol: int) -> None:
    assert look(pickle.dumps({"loss": float("nan")}, protocol), "x").holds is Holds.TENSORS
    assert look(pickle.dumps({"max_grad_norm": float("inf")}, protocol), "x").holds is Holds.NOTHING


def test_a_mindrecord_is_no_file_of_safetensors() -> None:
    header = b'{"header_size": 16777216, "schema": {"x": {"type": "float32", "shape": [2]}}}'
    assert look(len(header).to_bytes(8, "little") + header, "train.mindrecord").holds is Holds.UNKNOWN


@pytest.mark.parametrize("name", ["train.bin", "tokens", "x.dat", "sentencepiece.model", "0.0"])
def test_bytes_without_a_mark_are_not_known(name: str) -> None:
    content = np.random.default_rng(1).bytes(3 * LOOKED_AT)
    assert look(b"\x05" + content, name).holds is Holds.UNKNOWN


@pytest.mark.parametrize("values", [{"x": math.nan}, [math.nan], {"loss": math.inf}, {"losses": [0.1, -math.inf]}])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_of_numbers_that_are_findings_is_one_of_tensors(values: object, protocol: int) -> None:
    assert look(pickle.dumps(values, protocol), "state.pkl").holds is Holds.TENSORS


# -- doubts ----------------------------------------------------------------------------------------

LONG_SETTINGS = pickle.dumps([f"value {number}" for number in range(LOOKED_AT)])

DOUBTFUL: dict[str, tuple[str, bytes]] = {
    "an empty file of tensors": ("model.onnx", b""),
    "an empty file that may be one": ("mm_projector.bin", b""),
    "zeros in a file of tensors": ("model.gguf", bytes(9000)),
    "zeros in a file that may be one": ("mm_projector.bin", bytes(9000)),
    "text in a file of tensors": ("model.onnx", b"<html>404</html>\n"),
    "a pointer to a file of tensors": ("model.gguf", b"version https://git-lfs.github.com/spec/v1\n"),
    "a pointer to one that may be": ("pytorch_model.bin", b"version https://git-lfs.github.com/spec/v1\n"),
    "a pointer under any name": ("weights", POINTER),
    "a copy that has no bytes yet": ("optimizer.pt.tmp", b""),
    "a copy of zeros": ("optimizer.pt.tmp", bytes(9000)),
    "a copy that goes on": ("optimizer.pt.part", b"\x05\x93" * 99),
    "a copy by rsync": (".optimizer.pt.AbCdEf", bytes(9000)),
    "a copy by rsync without bytes": (".optimizer.pt.AbCdEf", b""),
    "a download": ("m.safetensors.crdownload", bytes(9000)),
    "a page instead of a download": ("m.safetensors.part", b"<html>404</html>\n"),
    "framed snappy with any name": ("x", b"\xff\x06\0\0sNaPpY" + bytes(40)),
    "a long pickle": ("memory.pickle", LONG_SETTINGS),
    "a pickle that is cut": ("x", pickle.dumps({"lr": 0.1, "names": list("abcdefgh")})[:-9]),
    "bytes behind a pickle": ("x", pickle.dumps({"lr": 0.1}) + b"\x17" * 40),
    "a long tar": ("code.tar", tar_of(a__txt=b"x" * LOOKED_AT, b__txt=b"text")),
    "an archive in an archive": ("code.zip", zip_of(a__txt=b"text", b__zip=b"?")),
    "an archive that nothing unpacks": ("code.7z", b"7z\xbc\xaf\x27\x1c" + bytes(40)),
    "zstd with any name": ("code.zst", b"\x28\xb5\x2f\xfd" + bytes(40)),
    "a damaged file of gzip": ("x.gz", b"\x1f\x8b" + bytes(40)),
    "a zip archive that is cut": ("code.zip", zip_of(a__txt=b"text" * 99)[:200]),
}


@pytest.mark.parametrize("kind", DOUBTFUL)
def test_what_the_bytes_do_not_decide_is_a_doubt(kind: str) -> None:
    name, content = DOUBTFUL[kind]
    found = look(content, name)
    assert found.holds is Holds.DOUBT
    assert found.why
    assert not found.format


# -- damage, and strange bytes ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in FOUND if " in " not in kind and "TorchScript" not in kind])
def test_the_first_half_of_a_file_of_tensors_is_never_something_else(kind: str, tmp_path: Path) -> None:
    content = FOUND[kind][1](tmp_path)
    assert look(content[: len(content) // 2]).holds in {Holds.TENSORS, Holds.DOUBT, Holds.UNKNOWN}
    assert look(content[: len(content) // 2], "x.pt").holds in {Holds.TENSORS, Holds.DOUBT}


def test_an_archive_is_told_by_its_end_where_its_first_page_is_damaged() -> None:
    array = np.ones(9000, np.float32)
    file = io.BytesIO()
    np.savez(file, x=array)
    assert look(bytes(4096) + file.getvalue()[4096:], "best.bin").format == "an archive of NumPy"
    saved = torch_file()
    assert look(bytes(512) + saved[512:], "best.bin").format == "a file of torch.save"


def test_no_bytes_make_it_fail_or_run_long() -> None:
    rng = np.random.default_rng(0)
    starts = [
        b"",
        b"PK\3\4",
        b"\x80\4",
        b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
        b"\x08",
        b"\n",
        b"\x81\xa1",
        b"BZh9",
    ]
    for number in range(400):
        content = starts[number % len(starts)] + rng.bytes(int(rng.choice([1, 9, 99, 999])))
        content += b"PK\5\6" + rng.bytes(18) if number % 2 else b""
        assert look(content, str(rng.choice(["x", "x.npz", "x.tar.gz", "x.index"]))).holds in Holds


def test_no_more_is_unpacked_than_is_looked_at() -> None:
    for packed in (gzip.compress(bytes(1 << 26)), lzma.compress(bytes(1 << 26)), zip_of(data__pkl=bytes(1 << 20))):
        assert look(packed, "x").holds in {Holds.UNKNOWN, Holds.DOUBT}


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress], ids=["gzip", "xz", "bzip2"])
def test_every_part_of_a_compressed_file_counts(pack: Callable[[bytes], bytes]) -> None:
    assert look(pack(b"a log\n") + pack(npy_file()), "x.gz").holds is Holds.TENSORS
    assert look(pack(b"a log\n") + pack(b"more of it\n"), "x.gz").holds is Holds.NOTHING


def test_the_older_form_of_xz_is_unpacked_too() -> None:
    assert look(lzma.compress(npy_file(), lzma.FORMAT_ALONE), "x.lzma").holds is Holds.TENSORS
    assert look(lzma.compress(b"words\n" * 99, lzma.FORMAT_ALONE), "x.lzma").holds is Holds.NOTHING


def test_a_member_of_a_zip_archive_without_a_suffix_is_looked_at() -> None:
    def archive(content: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("folder/LICENSE", "words")
            zipped.writestr("folder/data", content)
        return file.getvalue()

    assert look(archive(npy_file()), "x.zip").holds is Holds.TENSORS
    assert look(archive(b"words"), "x.zip").holds is Holds.NOTHING
