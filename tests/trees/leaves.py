"""One tensor with a NaN in a file of each format, read by the program or not, and files of files around such files.

Formats of other libraries are written by hand, as far as their marks and the places of their values go: no test needs
these libraries.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from tests.ascend_files import Written, file_bytes
from tests.sources.arrays import safetensors_bytes

Array = npt.NDArray[Any]
BAD: Final = np.array([[1.0, np.nan, 2.0], [0.5, -1.0, 3.0]], np.float32)
Content = Mapping[str, bytes]
"""Files by the end of their paths: one with an empty end is the file itself; more than one are a directory, or several
files whose names begin alike."""


def _saved(value: object, *, archive: bool = True) -> bytes:
    target = io.BytesIO()
    torch.save(value, target, _use_new_zipfile_serialization=archive)
    return target.getvalue()


def _npy(value: Array = BAD) -> bytes:
    target = io.BytesIO()
    np.save(target, value)
    return target.getvalue()


def _npz(value: Array = BAD, *, packed: bool = False) -> bytes:
    target = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(target, w=value)
    return target.getvalue()


def gguf(value: Array = BAD) -> bytes:
    """A GGUF file of version 3 with one tensor."""
    name = b"blk.0.w"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    key, said = b"general.architecture", b"llama"
    head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(said)) + said
    head += struct.pack("<Q", len(name)) + name + struct.pack("<I", value.ndim)
    head += struct.pack(f"<{value.ndim}Q", *reversed(value.shape)) + struct.pack("<IQ", 0, 0)
    return head + bytes(-len(head) % 32) + value.tobytes()


def _field(number: int, content: bytes | int) -> bytes:
    """A field of a message of protobuf; lengths below 16,384."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    length = len(content)
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([number << 3 | 2]) + size + content


def onnx(value: Array = BAD) -> bytes:
    """A model of ONNX with one initializer."""
    dims = b"".join(_field(1, size) for size in value.shape)
    initializer = dims + _field(2, 1) + _field(8, b"fc.weight") + _field(9, value.tobytes())
    node = _field(1, b"x") + _field(1, b"fc.weight") + _field(2, b"y") + _field(3, b"/fc/MatMul") + _field(4, b"MatMul")
    graph = _field(1, node) + _field(2, b"main_graph") + _field(5, initializer)
    return _field(1, 8) + _field(2, b"pytorch") + _field(3, b"2.13.0") + _field(7, graph) + _field(8, _field(2, 17))


def hdf5(value: Array = BAD, start: int = 0) -> bytes:
    """The signature and the superblock of HDF5, behind a block of the user's, and values."""
    superblock = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
    superblock += struct.pack("<QQQQ", start, 2**64 - 1, 2048, 2**64 - 1)
    return bytes(start) + superblock.ljust(1024, b"\0") + value.tobytes()


def msgpack(value: Array = BAD) -> bytes:
    """Parameters as flax writes them: a map to an extension of type 1, which holds shape, type and bytes."""
    data = value.tobytes()
    inner = b"\x93\x92" + bytes(value.shape) + b"\xa7float32" + b"\xc4" + bytes([len(data)]) + data
    array = b"\xc7" + bytes([len(inner), 1]) + inner
    return b"\x81\xa6params\x81\xa2fc\x81\xa6kernel" + array


def zarr(version: int, value: Array = BAD) -> Content:
    """A directory of zarr with one array in one chunk."""
    if version == 2:
        about: dict[str, Any] = {"zarr_format": 2, "shape": value.shape, "chunks": value.shape, "dtype": "<f4"}
        about |= {"compressor": None, "fill_value": 0, "order": "C", "filters": None}
        group = json.dumps({"zarr_format": 2}).encode()
        return {"/.zgroup": group, "/w/.zarray": json.dumps(about).encode(), "/w/0.0": value.tobytes()}
    grid = {"name": "regular", "configuration": {"chunk_shape": value.shape}}
    about = {"zarr_format": 3, "node_type": "array", "shape": value.shape, "data_type": "float32", "chunk_grid": grid}
    about |= {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "fill_value": 0}
    about |= {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "attributes": {}}
    return {"/zarr.json": json.dumps(about).encode(), "/c/0/0": value.tobytes()}


def ocdbt(value: Array = BAD) -> Content:
    """A directory of OCDBT, as Orbax writes checkpoints."""
    manifest = b"\x0c\xdb\x3a\x2a" + struct.pack(">Q", 64) + bytes(48)
    return {
        "/manifest.ocdbt": manifest + struct.pack("<I", zlib.crc32(manifest)),
        "/d/0c3ab1f2e84d3c6fa1d6b9a80f6a0e11": bytes([0x0C, 0xDB, 0x20, 0xDE]) + value.tobytes(),
        "/_METADATA": json.dumps({"tree_metadata": {}, "use_ocdbt": True}).encode(),
    }


def tensorflow(value: Array = BAD) -> Content:
    """A checkpoint of TensorFlow: values without a mark, and their index, a table of LevelDB."""
    footer = bytes(40) + bytes.fromhex("57fb808b247547db")
    return {".data-00000-of-00001": value.tobytes(), ".index": b"\0\0\0fc/kernel" + footer}


def one(content: bytes) -> Content:
    """A file by itself."""
    return {"": content}


@dataclass(frozen=True)
class Format:
    """A format of tensor files.

    Attributes:
        name: a word for it.
        stem, suffix: of a file as its program calls it.
        write: what makes the content.
        by_name: nothing in the content is a mark: only the name tells.
        several: it is a directory, or several files.
    """

    name: str
    stem: str
    suffix: str
    write: Callable[[], Content]
    by_name: bool = False
    several: bool = False


FORMATS: Final = (
    Format("npy", "grads", ".npy", lambda: one(_npy())),
    Format("npz", "grads", ".npz", lambda: one(_npz())),
    Format("packed npz", "grads", ".npz", lambda: one(_npz(packed=True))),
    Format("torch", "ema", ".pt", lambda: one(_saved({"w": torch.from_numpy(BAD.copy())}))),
    Format("old torch", "best", ".ckpt", lambda: one(_saved(torch.from_numpy(BAD.copy()), archive=False))),
    Format("pickle 2", "arrays", ".pkl", lambda: one(pickle.dumps({"w": BAD}, 2))),
    Format("pickle 5", "arrays", ".pickle", lambda: one(pickle.dumps([BAD], 5))),
    Format("safetensors", "adapter_model", ".safetensors", lambda: one(safetensors_bytes({"w": BAD}))),
    Format("gguf", "model-f32", ".gguf", lambda: one(gguf())),
    Format("onnx", "model", ".onnx", lambda: one(onnx())),
    Format("hdf5", "model.weights", ".h5", lambda: one(hdf5())),
    Format("hdf5 at 512", "model", ".hdf5", lambda: one(hdf5(start=512))),
    Format("msgpack", "flax_model", ".msgpack", lambda: one(msgpack())),
    Format("zarr 2", "weights", ".zarr", lambda: zarr(2), several=True),
    Format("zarr 3", "weights", ".zarr", lambda: zarr(3), several=True),
    Format("ocdbt", "default", "", ocdbt, several=True),
    Format("ascend", "Add.Default_Add-op1.7.2.1700000000000500", "", lambda: one(file_bytes([], [Written(BAD)]))),
    Format("tensorflow", "model.ckpt-5", "", tensorflow, by_name=True, several=True),
)
ALONE: Final = tuple(form for form in FORMATS if not form.several)
"""Those that are one file, whose content is a mark."""


# -- files of files ------------------------------------------------------------------------------------------------


def zstd(content: bytes) -> bytes:
    """A frame of Zstandard whose one block is stored."""
    head = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(content))
    return head + struct.pack("<I", len(content) << 3 | 1)[:3] + content


def tar(name: str, content: bytes) -> bytes:
    """A tar with one member."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as file:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        file.addfile(info, io.BytesIO(content))
    return target.getvalue()


def packed(name: str, content: bytes) -> bytes:
    """An archive of zip with one member."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return target.getvalue()


WRAPPINGS: Final[Mapping[str, Callable[[str, bytes], bytes]]] = {
    ".gz": lambda _, content: gzip.compress(content, mtime=0),
    ".xz": lambda _, content: lzma.compress(content),
    ".bz2": lambda _, content: bz2.compress(content),
    ".zst": lambda _, content: zstd(content),
    ".tar": tar,
    ".tar.gz": lambda name, content: gzip.compress(tar(name, content), mtime=0),
    ".zip": packed,
}
"""What makes a file of another one, by the suffix that it adds."""


def write(path: Path, content: Content) -> list[Path]:
    """Writes the files of a leaf whose name is that of ``path``."""
    found = [path.with_name(path.name + end.partition("/")[0]) / end.partition("/")[2] for end in content]
    for file, data in zip(found, content.values(), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return found
