"""The table of formats of tensor files, and the recognition of a file's format.

``looked_at`` decides by at most ``LOOKED_AT`` bytes at each end of a file, and by its name where a format has no magic
bytes. It executes nothing and trusts no stated length. Where so few bytes do not decide, the answer is DOUBT: the file
may hold tensors. Each row of ``TABLE`` names the reader (a key of ``npy.FORMATS``), or none if the format is not read.
"""

from __future__ import annotations

import bz2
import io
import lzma
import math
import pickletools
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import Any, Final, Protocol

from tui_debugger.model import words
from tui_debugger.stats.archive import SeekableBytes
from tui_debugger.stats.ascend_nano import NANO
from tui_debugger.stats.names_of_numbers import is_value
from tui_debugger.stats.plain_files import is_marked, is_text
from tui_debugger.stats.protobuf_fields import first_fields

LOOKED_AT: Final = 1 << 16
"""Bytes of each end of a file that are looked at."""
_DEEP: Final = 3
"""Greatest nesting of files in files, such as a compressed tar of files."""
_MOST_MEMBERS: Final = 1 << 12
"""Most members of an archive that are looked at one by one."""


class Holds(Enum):
    """Whether a file holds tensors."""

    TENSORS = "tensors"
    NOTHING = "nothing"
    """Recognized as something else: text, a picture, a program."""
    UNKNOWN = "unknown"
    """Bytes without any known mark."""
    DOUBT = "doubt"
    """The bytes that were looked at do not decide it, or the file is damaged."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The answer for one file: ``format`` names a row of ``TABLE``, perhaps with a compression or archive.

    ``reader`` is a key of ``npy.FORMATS``, empty when such files are not read. ``why`` explains a doubt.
    """

    holds: Holds
    format: str = ""
    reader: str = ""
    why: str = ""


NOTHING: Final = LookedAt(Holds.NOTHING)
TEXT: Final = LookedAt(Holds.NOTHING, why="is text")
"""The answer for text with a suffix of PyTorch files: search paths of Python (``.pth``)."""
UNKNOWN: Final = LookedAt(Holds.UNKNOWN)


def _doubt(why: str) -> LookedAt:
    return LookedAt(Holds.DOUBT, why=why)


Beside = Callable[[str], bytes | None]
"""Returns the first bytes of a file beside another file, by the path from that file's directory; None: no such file.

A ``*`` in the path stands for the name of the other file without its suffix.
"""


@dataclass(frozen=True, slots=True)
class Ends:
    """The known parts of a file: at most ``LOOKED_AT`` bytes of each end.

    ``size`` is too large for a compressed file that was not unpacked to its end. ``name`` is in lower case, without
    directories. ``depth`` is the number of files around it.
    """

    head: bytes
    tail: bytes
    size: int
    name: str
    depth: int = 0
    beside: Beside = lambda _: None

    @property
    def is_whole(self) -> bool:
        return self.size <= len(self.head)

    def read_at(self, first: int, count: int) -> bytes:
        """Returns bytes from a place on; the unknown middle reads as zeros."""
        found = self.head[first : first + count]
        behind = self.size - len(self.tail)
        found += bytes(min(max(behind - first - len(found), 0), count - len(found)))
        at = first + len(found) - behind
        return found + (self.tail[at : at + count - len(found)] if len(found) < count else b"")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A row of the table. Names and suffixes are in lower case.

    Attributes:
        reader: key of ``npy.FORMATS``; empty when the format is not read yet.
        suffixes: suffixes of this format alone: a file with one and other content is damaged.
        marks: magic bytes, each with its offset.
        named: names that decide the format without magic bytes.
        unmarked: names that decide it unless the file is text or has another format's mark.
        companion: path, as for ``Beside``, of a file that must lie beside an unmarked file, and a pattern in it.
        decides: looks into the file; None: another format.
    """

    name: str
    reader: str = ""
    suffixes: tuple[str, ...] = ()
    marks: tuple[tuple[int, bytes], ...] = ()
    named: re.Pattern[str] | None = None
    unmarked: re.Pattern[str] | None = None
    companion: tuple[str, re.Pattern[bytes]] | None = None
    decides: Callable[[Ends], LookedAt | None] | None = None

    @property
    def found(self) -> LookedAt:
        return LookedAt(Holds.TENSORS, self.name, self.reader)

    def look(self, ends: Ends) -> LookedAt | None:
        """Returns the answer for a file; None: another format."""
        if self.named is not None and self.named.fullmatch(ends.name):
            return self.found
        if any(ends.head.startswith(mark, place) for place, mark in self.marks):
            return self.found
        return self.decides(ends) if self.decides is not None else None

    def is_called(self, name: str) -> bool:
        """Tells whether a name (in lower case) alone points to this format, or to text."""
        patterns = (self.named, self.unmarked if self.companion is None else None)
        return any(pattern is not None and pattern.fullmatch(name) for pattern in patterns)

    def is_unmarked(self, ends: Ends) -> bool:
        """Tells whether a file's name and the file beside it say that its unmarked bytes are tensors."""
        if self.unmarked is None or not self.unmarked.fullmatch(ends.name):
            return False
        if self.companion is None:
            return True
        path, holds = self.companion
        beside = ends.beside(path)
        return beside is not None and holds.search(beside) is not None


def looked_at(head: bytes, tail: bytes, size: int, name: str, beside: Beside = lambda _: None) -> LookedAt:
    """Returns whether a file holds tensors; arguments as in ``Ends``, but ``name`` may have directories."""
    return _look(Ends(head, tail, size, name.rpartition("/")[2].lower(), beside=beside))


def format_of_name(name: str) -> FileFormat | None:
    """Returns the row that a file's name points to; None when the name does not tell."""
    found = _by_suffix().get(name[name.rfind(".") :].lower())
    if found is not None:
        return found
    low = name.rpartition("/")[2].lower()
    return next((row for row in TABLE if row.is_called(low)), None)


@cache
def _by_suffix() -> dict[str, FileFormat]:
    return {suffix: row for row in TABLE for suffix in row.suffixes}


def may_hold_tensors(name: str) -> bool:
    """Tells whether a file has a name of tensor files, perhaps shared with others, so that its bytes must decide."""
    return name.lower().endswith(_MAY_BE) or format_of_name(name) is not None


def _look(ends: Ends) -> LookedAt:
    looks = (_is_missing, *(row.look for row in TABLE), _look_into_archive, _look_into_compressed, _look_into_tar)
    return next((found for look in looks if (found := look(ends)) is not None), None) or _is_something_else(ends)


def _is_missing(ends: Ends) -> LookedAt | None:
    """Recognizes a file without its content (empty, or a pointer of Git LFS): a doubt if named like a tensor file."""
    if not ends.size:
        if _unfinished(ends.name) is not None:
            return None
        return _doubt("is empty") if may_hold_tensors(ends.name) else NOTHING
    if not ends.head.startswith(LFS_POINTER):
        return None
    plain = ends.name.endswith(_TEXTS) or _SEEN_OR_HEARD.fullmatch(ends.name) or not _SIZE.search(ends.head)
    if plain and not may_hold_tensors(ends.name):
        return NOTHING
    return _doubt("is a pointer of Git LFS: the file itself was not fetched")


def _unfinished(name: str) -> FileFormat | None:
    """Returns the format that an unfinished download or copy will have; None: its name does not tell."""
    found = _UNFINISHED.fullmatch(name)
    return format_of_name(found[1] or found[2]) if found is not None else None


_PATHS: Final = ".pth"
"""A suffix that files with search paths of Python have, too."""


def _is_something_else(ends: Ends) -> LookedAt:
    text = is_text(ends.head)
    unfinished = _unfinished(ends.name)
    if unfinished is not None and not (text and ends.size and ends.name.startswith(".")):
        return _doubt(f"is an unfinished file: {unfinished.name}")
    unmarked = next((row for row in TABLE if row.is_unmarked(ends)), None) if not text else None
    if unmarked is not None:
        return unmarked.found
    if is_marked(ends.head):
        return NOTHING
    if text and ends.name.endswith(_PATHS) and is_text(ends.tail):
        return TEXT
    called = _by_suffix().get(ends.name[ends.name.rfind(".") :])
    why = f"is called as {called.name} is, and is none: it is damaged" if called is not None else ""
    if ends.name.endswith(_MAY_BE) and not ends.head[:_PAGE].strip(b"\0"):
        why = why or "begins with zeros: it is damaged"
    return _doubt(why) if why else NOTHING if text else UNKNOWN


_UNFINISHED: Final = re.compile(
    r"(.+)\.(?:tmp|temp|part|partial|incomplete|crdownload|download|aria2)|\.(.+)\.[a-z0-9]{6}"
)
"""Names of unfinished downloads and copies; the last form is rsync's."""
_PAGE: Final = 4096
LFS_POINTER: Final = b"version https://git-lfs"
_SIZE: Final = re.compile(rb"\nsize [1-9]")
_SEEN_OR_HEARD: Final = re.compile(
    r".+\.(?:png|jpe?g|gif|bmp|svg|webp|tiff?|ico|psd|pdf|ps|mp[34]|wav|flac|ogg|webm|avi|mov|mkv|[to]tf|woff2?|ipynb"
    r"|parquet|arrow|docx|pptx|xlsx|exe|dll|so|jar|whl)"
)
"""Names of pictures, papers, sounds, fonts, tables and programs."""
_MAY_BE: Final = words(".bin .data .index .pb .dat .model .gz .xz .bz2 .zst .lz4 .tar .zip")
"""Suffixes that tensor files share with other files."""
_PACKED: Final = (*_MAY_BE, ".tgz", ".7z", ".rar")


# -- zip archives ----------------------------------------------------------------------------------


def _members(ends: Ends) -> tuple[list[zipfile.ZipInfo], zipfile.ZipFile] | None:
    """Returns the directory of a zip archive; None: it is damaged, or longer than the known end."""
    try:
        content: Any = SeekableBytes(ends.size, 4 * LOOKED_AT, ends.read_at)
        archive = zipfile.ZipFile(content)
    except _DAMAGED_ZIP:
        return None
    return archive.infolist(), archive


_DAMAGED_ZIP: Final = (
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    *(OSError, ValueError, EOFError, IndexError),
)
"""Errors of ``zipfile``."""
_LOCAL_NAME: Final = re.compile(rb"PK\x03\x04.{22}(..)..", re.DOTALL)


def _first_names(head: bytes) -> Iterator[str]:
    """Yields names from the local headers within the first bytes of an archive."""
    for found in _LOCAL_NAME.finditer(head):
        yield head[found.end() :][: int.from_bytes(found[1], "little")].decode("utf-8", "replace")


def _is_archive(ends: Ends) -> bool:
    """Recognizes a zip archive by its beginning, or by its end where the beginning is damaged."""
    if ends.head.startswith((b"PK\3\4", b"PK\5\6")):
        return True
    return not ends.head.startswith(_TAR, _TAR_AT) and ends.tail.rfind(b"PK\5\6") >= 0


def _looks_like_npz(ends: Ends) -> LookedAt | None:
    if not _is_archive(ends):
        return None
    listed = _members(ends)
    names = _first_names(ends.head) if listed is None else (info.filename for info in listed[0])
    return _NPZ.found if any(name.lower().endswith(".npy") for name in names) else None


def _looks_like_torch(ends: Ends) -> LookedAt | None:
    """Recognizes a file of ``torch.save`` by its member data.pkl."""
    if not _is_archive(ends):
        return None
    listed = _members(ends)
    if listed is None:
        return _TORCH.found if any(name.endswith("data.pkl") for name in _first_names(ends.head)) else None
    names = {info.filename: info for info in listed[0]}
    pickled = next((name for name in names if name.rpartition("/")[2] == "data.pkl"), None)
    if pickled is None:
        return None
    folder = pickled.removesuffix("data.pkl")
    if f"{folder}constants.pkl" in names:
        return LookedAt(Holds.TENSORS, "a TorchScript program")
    has_storages = any(name.startswith(f"{folder}data/") for name in names)
    return _TORCH.found if has_storages else _without_storages(listed[1], names[pickled])


def _without_storages(archive: zipfile.ZipFile, pickled: zipfile.ZipInfo) -> LookedAt:
    """Decides by its pickle whether a file of ``torch.save`` without storages holds arrays or only settings."""
    try:
        with archive.open(pickled) as file:
            data = file.read(LOOKED_AT + 1)
        found = _looks_like_pickle(Ends(data[:LOOKED_AT], data[-LOOKED_AT:], pickled.file_size, "data.pkl"))
    except _DAMAGED_ZIP:
        found = None
    if found is None or found.holds is Holds.DOUBT:
        return _doubt("is a file of torch.save whose pickle could not be looked at")
    return found if found.holds is Holds.NOTHING else _TORCH.found


def _look_into_archive(ends: Ends) -> LookedAt | None:
    """Looks at the members' names: a zip archive that no row knows may contain tensor files."""
    if not _is_archive(ends):
        return None
    listed = _members(ends)
    if listed is None and not ends.head.startswith(b"PK\3\4"):
        return None
    if listed is None:
        names = list(_first_names(ends.head))
    else:
        names = [
            info.filename for info in listed[0] if info.file_size >= _LEAST_SAVED or not info.filename.endswith(".pth")
        ]
    held = next((row for name in names if (row := format_of_name(name)) is not None), None)
    if held is not None:
        return LookedAt(Holds.TENSORS, f"{held.name} in a zip archive")
    if listed is None:
        return _doubt("is a zip archive whose directory is damaged, or too long to be looked at")
    inner = next((name for name in names if name.lower().endswith(_PACKED)), None)
    if inner is None or _OFFICE in names:
        return _look_at_nameless(*listed, ends.depth) or NOTHING
    return _doubt(f"is a zip archive with {inner[:80]!r} in it, which was not looked at")


def _look_at_nameless(infos: Sequence[zipfile.ZipInfo], archive: zipfile.ZipFile, depth: int) -> LookedAt | None:
    """Looks at members without a suffix, as far as their bytes are known; None: none of them holds tensors."""
    nameless = [info for info in infos if info.file_size and "." not in info.filename.rpartition("/")[2]]
    for info in nameless[:_MOST_PARTS] if depth < _DEEP else ():
        try:
            with archive.open(info) as member:
                head = member.read(LOOKED_AT)
        except _DAMAGED_ZIP:
            continue
        tail = head if len(head) == info.file_size else b""
        answer = _look(Ends(head, tail, info.file_size, info.filename.rpartition("/")[2].lower(), depth + 1))
        if answer.holds is Holds.TENSORS:
            return LookedAt(Holds.TENSORS, f"{answer.format} in a zip archive")
    return None


_LEAST_SAVED: Final = 256
"""``torch.save`` writes more bytes; smaller ``.pth`` members (of a wheel) are search paths of Python."""
_OFFICE: Final = "[Content_Types].xml"
"""A member of every document of an office program, and of no other archive."""


# -- pickles ---------------------------------------------------------------------------------------

TORCH_MAGIC: Final = 0x1950A86A20F9469CFC6C
_BUILDERS: Final = re.compile(
    r"(?:torch|torch_npu|numpy|jax|jaxlib|tensorflow|keras|flax|mindspore|paddle|cupy|mxnet|chainer|oneflow|tinygrad|mlx"
    r"|array|joblib|scipy|pandas|ml_dtypes|sklearn|xgboost|lightgbm)\..*"
)
"""Libraries whose objects hold arrays."""
_SETTINGS: Final = re.compile(
    r"torch\.(?:device|Size|dtype|bool|half|double|long|short|char|strided|\w+_format|q?u?int\d*\w*|b?float\d*\w*"
    r"|complex\d*|bits\d\w*)"
    r"|torch\.(?:serialization\._get_layout|optim\.lr_scheduler\.\w+|distributed\.\w+\.\w*(?:Strategy|Type|Mode|Policy))"
    r"|(?:numpy|ml_dtypes)\.(?:dtype|dtypes\.\w+|bool_?|u?int\w*|b?float\w*|complex\w*|str_|bytes_)"
)
"""Names of these libraries that occur in settings: element types, devices."""


def _looks_like_pickle(ends: Ends) -> LookedAt | None:
    """Reads the opcodes of consecutive pickles for the classes and functions that they name."""
    data, at, row = ends.head, 0, _PICKLE
    binary = data[:1] == b"\x80" and data[1:2] in {b"\2", b"\3", b"\4", b"\5"}
    if not binary and data[:1] not in _TEXT_PICKLES:
        return None
    while at < len(data) and (not at or data[at : at + 1] == b"\x80"):
        stream, names = io.BytesIO(data[at:]), _PickledNames()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about odd text in the pickle
                for code, argument, _ in pickletools.genops(stream):
                    if code.name == "LONG1" and argument == TORCH_MAGIC:
                        row = _LEGACY
                    if names.take(code.name, argument):
                        return row.found
        except (ValueError, IndexError, OverflowError):
            if not binary or (not at and stream.tell() < len(data)):
                return None  # only its first bytes look like a pickle
            at += stream.tell()
            break
        at += stream.tell()
    else:
        if at == len(data) == ends.size:
            return NOTHING
    if not binary:
        return None
    return _doubt(_CUT if at < ends.size or not ends.is_whole else "is a pickle that ends in the middle")


_CUT: Final = "is a pickle that goes on: its end was not looked at"
_TEXT_PICKLES: Final = frozenset(bytes([code]) for code in b"(]})lcdIFSVULN")
"""The first bytes of pickles of protocols 0 and 1 that hold more than a number."""


class _PickledNames:
    """Finds the classes and functions that a pickle names, by simulating as much of its stack as that takes."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._remembered: dict[int, str] = {}
        self._last = ""

    def take(self, code: str, argument: object) -> bool:
        """Takes the next opcode; tells whether it names a builder of arrays, a storage, or a non-finite value."""
        if "UNICODE" in code or "STRING" in code:
            self._last = str(argument)[:200]
            self._texts = [*self._texts[-1:], self._last]
        elif code in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            place = len(self._remembered) if code == "MEMOIZE" else int(str(argument))
            self._remembered[place] = self._last
        elif code in ("GET", "BINGET", "LONG_BINGET"):
            self._last = self._remembered.get(int(str(argument)), "")
            self._texts = [*self._texts[-1:], self._last]
        elif code in ("GLOBAL", "INST"):
            self._last = ""
            return _makes_arrays(str(argument).replace(" ", "."))
        elif code == "STACK_GLOBAL":
            self._last = ""
            return _makes_arrays(".".join(self._texts[-2:]))
        elif code in ("PERSID", "BINPERSID"):
            return True  # a storage that lies outside of the pickle
        elif code in ("FLOAT", "BINFLOAT"):
            self._last = ""
            name = self._texts[-1] if self._texts else ""
            return isinstance(argument, float) and (math.isnan(argument) or (math.isinf(argument) and is_value(name)))
        else:
            self._last = ""
        return False


def _makes_arrays(name: str) -> bool:
    return _BUILDERS.fullmatch(name) is not None and _SETTINGS.fullmatch(name) is None


# -- other formats ---------------------------------------------------------------------------------


def _looks_like_safetensors(ends: Ends) -> LookedAt | None:
    length = int.from_bytes(ends.head[:8], "little")
    if not 2 <= length <= 100_000_000 or not re.match(rb"\{\s*[\"}]", ends.head[8:40]):
        return None
    if ends.head[8 : 8 + length].strip() == b"{}":
        return NOTHING
    return _SAFETENSORS.found if _IN_SAFETENSORS.search(ends.head) else None  # a MindRecord begins like that, too


_IN_SAFETENSORS: Final = re.compile(rb'"(?:__metadata__|dtype|data_offsets)"')
"""A key of the header; the first one is within the first bytes."""


def _looks_like_hdf5(ends: Ends) -> LookedAt | None:
    """Looks for a superblock at 0, 512, 1,024 and so on."""
    place = 0
    while place + 8 <= len(ends.head):
        if ends.head.startswith(b"\x89HDF\r\n\x1a\n", place):
            return _HDF5.found
        place = 2 * place or 512
    return None


_FLAX_ARRAY: Final = re.compile(
    rb"(?:\xc7.|\xc8..|\xc9....)[\x01\x02]\x93|__msgpack_chunked_array__|\xc4\x02nd\xc3|\xa2nd\xc3", re.DOTALL
)
"""An array in msgpack as flax and msgpack-numpy write it."""


def _looks_like_msgpack(ends: Ends) -> LookedAt | None:
    first, key = ends.head[:1], ends.head[1:2]
    if first in {b"\xde", b"\xdf"}:
        key = ends.head[3:4] if first == b"\xde" else ends.head[5:6]
    elif not b"\x81" <= first <= b"\x8f":
        return None
    if not (b"\xa0" <= key <= b"\xbf" or key in {b"\xd9", b"\xda", b"\xc4"}):
        return None
    if _FLAX_ARRAY.search(ends.head):
        return _MSGPACK.found
    if ends.name.endswith(_MSGPACK.suffixes):
        return NOTHING if ends.is_whole else _doubt("is a long file of msgpack: its end was not looked at")
    return None


def _looks_like_onnx(ends: Ends) -> LookedAt | None:
    """Recognizes a ``ModelProto``: version of its format, perhaps producers, and a graph (field 7)."""
    if ends.head[:1] != b"\x08":
        return None
    fields = first_fields(ends.head, ends.size)
    texts = {2, 3, 4, 6, 7, 8, 14, 20, 25}
    good = all(isinstance(value, bytes) if number in texts else number in (1, 5) for number, value in fields)
    return _ONNX.found if good and any(number == 7 for number, _ in fields) else None


_MINDSPORE_TYPES: Final = re.compile(rb"(?:U?Int|B?Float|Complex|Bool|Str)\w{0,4}")


def _looks_like_mindspore(ends: Ends) -> LookedAt | None:
    """Recognizes a ``Checkpoint``: values, each with a tag and a tensor whose type is a word."""
    if ends.head[:1] != b"\n":
        return None
    value = next((value for number, value in first_fields(ends.head, ends.size, 1) if number == 1), None)
    inside = first_fields(value, ends.size, 2) if isinstance(value, bytes) else []
    if [number for number, _ in inside] != [1, 2] or not isinstance(inside[1][1], bytes):
        return None
    types = [each for number, each in first_fields(inside[1][1], ends.size, 40) if number == 2]
    good = any(isinstance(each, bytes) and _MINDSPORE_TYPES.fullmatch(each) for each in types)
    return _MINDSPORE.found if good else None


def _looks_like_ascend(ends: Ends) -> LookedAt | None:
    """Recognizes a device's dump: a length, then a message with inputs (field 4) or outputs (3), or nano magic."""
    length = int.from_bytes(ends.head[:8], "little")
    if not _LEAST_HEADER <= length <= 1 << 24 or length + 8 > ends.size:
        return None
    if ends.head[8:12] == NANO:
        return _ASCEND.found
    fields = first_fields(ends.head[8 : 8 + length], length)
    texts = {1, 3, 4, 5, 6, 7, 8, 9, 10}
    good = all(isinstance(value, bytes) for number, value in fields if number in texts)
    tensors = [value for number, value in fields if number in (3, 4) and isinstance(value, bytes)]
    said = {number for value in tensors for number, _ in first_fields(value, len(value))}
    return _ASCEND.found if good and said & {1, 2, 3} else None


_LEAST_HEADER: Final = 8


def _looks_like_zarr(ends: Ends) -> LookedAt | None:
    if ends.name != "zarr.json":
        return None
    return _ZARR.found if re.search(rb'"node_type"\s*:\s*"array"', ends.head) else None


def _looks_like_index_of_tensorflow(ends: Ends) -> LookedAt | None:
    table = ends.name.endswith(".index") and ends.tail.endswith(b"\x57\xfb\x80\x8b\x24\x75\x47\xdb")
    return _TENSORFLOW.found if table else None


_FAISS_HEAD: Final = re.compile(rb"I[xwHBm][A-Za-z0-9]{2}..[\0-\x0f]\0", re.DOTALL)
"""Four letters for the kind of index, and the length of its vectors."""


def _looks_like_faiss(ends: Ends) -> LookedAt | None:
    return _FAISS.found if _FAISS_HEAD.match(ends.head) else None


# -- packed files ----------------------------------------------------------------------------------


class _Unpacker(Protocol):
    """A decompressor of the standard library."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


_COMPRESSED: Final[tuple[tuple[str, bytes, Callable[[], _Unpacker] | None], ...]] = (
    ("gzip", b"\x1f\x8b", partial(zlib.decompressobj, 31)),
    ("xz", b"\xfd7zXZ\0", lzma.LZMADecompressor),
    ("lzma", b"\x5d\0\0", lzma.LZMADecompressor),
    ("bzip2", b"BZh", bz2.BZ2Decompressor),
    *(("zlib", bytes([0x78, level]), zlib.decompressobj) for level in (0x01, 0x5E, 0x9C, 0xDA)),
    ("compress", b"\x1f\x9d", None),
    ("zstd", b"\x28\xb5\x2f\xfd", None),
    # Files of pzstd begin with a skippable frame.
    *(("zstd", bytes([first]) + b"\x2a\x4d\x18", None) for first in range(0x50, 0x60)),
    ("lz4", b"\x04\x22\x4d\x18", None),
    ("snappy", b"\xff\x06\0\0sNaPpY", None),
    ("7z", b"7z\xbc\xaf\x27\x1c", None),
    ("rar", b"Rar!\x1a\x07", None),
)
"""Name, magic bytes, and decompressor; None: the standard library has none."""
_TEXTS: Final = words(".json .jsonl .txt .log .csv .tsv .yaml .yml .md .html .xml .py .sql")


_WITHOUT_MARK: Final = ("zlib", "lzma")
"""Compressions whose magic bytes occur in other files, too."""


def _look_into_compressed(ends: Ends) -> LookedAt | None:
    """Unpacks the first bytes of a compressed file, of each of its parts, and looks at them."""
    found = next(((way, unpacker) for way, mark, unpacker in _COMPRESSED if ends.head.startswith(mark)), None)
    if found is None:
        return None
    way, unpacker = found
    if ends.depth >= _DEEP:
        return _doubt("has files in files: they were not looked at")
    inner = ends.name.removesuffix(f".{ends.name.rpartition('.')[2]}")
    if unpacker is None:
        row = format_of_name(inner)
        answer = row.found if row is not None else NOTHING if inner.endswith(_TEXTS) else None
        answer = answer or _doubt(f"is compressed ({way}): its content was not looked at")
    else:
        try:
            answer = _look_at_parts(ends, inner, unpacker)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
            answer = _doubt(f"is compressed ({way}) and damaged")
    if answer.holds is Holds.TENSORS:
        return LookedAt(Holds.TENSORS, f"{answer.format}, compressed ({way})")
    return answer if way not in _WITHOUT_MARK or answer.holds is not Holds.DOUBT else None


def _look_at_parts(ends: Ends, inner: str, unpacker: Callable[[], _Unpacker]) -> LookedAt:
    """Looks at the compressed parts within the first bytes until one holds tensors."""
    packed = ends.head
    for _ in range(_MOST_PARTS):
        unpack = unpacker()
        head = unpack.decompress(packed, LOOKED_AT)
        size = len(head) if unpack.eof and len(head) < LOOKED_AT else 1 << 62
        answer = _look(Ends(head, head if size == len(head) else b"", size, inner, ends.depth + 1))
        packed = unpack.unused_data.lstrip(b"\0")
        if answer.holds in (Holds.TENSORS, Holds.DOUBT) or not packed:
            return answer
    return _doubt(f"has more than {_MOST_PARTS} parts: the others were not looked at")


_MOST_PARTS: Final = 64
_BLOCK: Final = 512
_TAR: Final = b"ustar"
_TAR_AT: Final = 257


def _look_into_tar(ends: Ends) -> LookedAt | None:
    """Looks at the members of a tar within its first bytes."""
    if not ends.head.startswith(_TAR, _TAR_AT):
        return None
    if ends.depth >= _DEEP:
        return _doubt("has files in files: they were not looked at")
    at = 0
    for _ in range(_MOST_MEMBERS):
        header = ends.head[at : at + _BLOCK]
        if len(header) < _BLOCK:
            break
        if not header.strip(b"\0"):
            return NOTHING if not ends.head[at:].strip(b"\0") and ends.is_whole else _doubt("is a damaged tar")
        try:
            size = int(header[124:136].strip(b"\0 ") or b"0", 8)
        except ValueError:
            break
        if header[156:157] in {b"0", b"\0"} and size:
            content = ends.head[at + _BLOCK : at + _BLOCK + min(size, LOOKED_AT)]
            name = header[:100].partition(b"\0")[0].decode("utf-8", "replace").rpartition("/")[2].lower()
            whole = len(content) == size
            answer = _look(Ends(content, content if whole else b"", size, name, ends.depth + 1))
            if answer.holds is Holds.TENSORS:
                return LookedAt(Holds.TENSORS, f"{answer.format} in a tar")
            if answer.holds is Holds.DOUBT:
                return replace(answer, why=f"is a tar with {name[:80]!r} in it, which {answer.why}")
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK
    return _doubt("is a tar: not all of what is in it was looked at")


# -- the table -------------------------------------------------------------------------------------

_NPY: Final = FileFormat("an array of NumPy", "npy", (".npy",), ((0, b"\x93NUMPY"),))
_NPZ: Final = FileFormat("an archive of NumPy", "npz", (".npz",), decides=_looks_like_npz)
_PART: Final = FileFormat("a part of a distributed checkpoint", named=re.compile(r".+\.distcp"))
_TORCH: Final = FileFormat("a file of torch.save", "pt", (".pt", ".pth", ".ckpt"), decides=_looks_like_torch)
_PICKLE: Final = FileFormat("a pickle", "", (".pkl", ".pickle", ".joblib"), decides=_looks_like_pickle)
_LEGACY: Final = FileFormat("a file of torch.save before 1.6", "pt")
_SAFETENSORS: Final = FileFormat(
    "a file of safetensors", "safetensors", (".safetensors",), decides=_looks_like_safetensors
)
_HDF5: Final = FileFormat("HDF5", "", (".h5", ".hdf5", ".he5"), decides=_looks_like_hdf5)
_MSGPACK: Final = FileFormat("a checkpoint of flax", "", (".msgpack",), decides=_looks_like_msgpack)
_ONNX: Final = FileFormat(
    "ONNX", "", (".onnx",), named=re.compile(r".+\.onnx(?:_data|\.data)"), decides=_looks_like_onnx
)
_MINDSPORE: Final = FileFormat("a checkpoint of MindSpore", decides=_looks_like_mindspore)
_ASCEND: Final = FileFormat(
    "a file of an Ascend device",
    "ascend",
    named=re.compile(r"[^.]+\.[^.]+\.\d+(?:\.\d+)?\.\d{13,}(?:\.\d+\.\d+\.\d+\.\d+)?"),
    decides=_looks_like_ascend,
)
_ATB: Final = FileFormat("a file of ATB", "atb", marks=((0, b"$Version="),))
_ZARR: Final = FileFormat("an array of zarr", named=re.compile(r"\.zarray"), decides=_looks_like_zarr)
_TENSORFLOW: Final = FileFormat(
    "a checkpoint of TensorFlow",
    named=re.compile(r".+\.data-\d{5}-of-\d{5}"),
    decides=_looks_like_index_of_tensorflow,
)
_FAISS: Final = FileFormat("an index of FAISS", suffixes=(".faiss",), decides=_looks_like_faiss)
_ANY: Final = re.compile(b"")
_RAW: Final = "raw values"

TABLE: Final[tuple[FileFormat, ...]] = (
    _NPY,
    _NPZ,
    _PART,
    _TORCH,
    _SAFETENSORS,
    _HDF5,
    FileFormat(
        "GGUF", "", (".gguf", ".ggml"), tuple((0, mark) for mark in (b"GGUF", b"lmgg", b"tjgg", b"algg", b"fmgg"))
    ),
    FileFormat("TensorFlow Lite", "", (".tflite",), ((4, b"TFL3"),)),
    FileFormat("NetCDF", "", (".nc",), tuple((0, b"CDF" + version) for version in (b"\1", b"\2", b"\5"))),
    FileFormat("MATLAB", "", (".mat",), ((0, b"MATLAB 5.0 MAT-file"),)),
    FileFormat("parameters of MXNet", "", (), ((0, b"\x12\1\0\0\0\0\0\0"),)),
    FileFormat("parameters of Keras", "", (".keras",)),
    FileFormat("an OCDBT store (orbax)", "", (), ((0, b"\x0c\xdb\x3a\x2a"),), re.compile(r"manifest\.ocdbt")),
    _ZARR,
    _TENSORFLOW,
    _MSGPACK,
    _PICKLE,
    _LEGACY,
    _ONNX,
    _MINDSPORE,
    _ASCEND,
    _ATB,
    _FAISS,
    FileFormat("a program of ExecuTorch", "", (".pte",), ((4, b"ET12"),)),
    FileFormat(
        "an engine of TensorRT",
        marks=((0, b"ftrt"), (0, b"ptrt")),
        unmarked=re.compile(r".+\.(?:engine|plan|trt)"),
    ),
    FileFormat("weights of TensorFlow.js", named=re.compile(r"group\d+-shard\d+of\d+(?:\.bin)?")),
    FileFormat("parameters of PaddlePaddle", unmarked=re.compile(r".+\.pdi?params")),
    FileFormat("a model of Caffe", unmarked=re.compile(r".+\.caffemodel")),
    FileFormat("a model of Core ML", unmarked=re.compile(r".+\.mlmodel")),
    FileFormat("weights of Core ML", unmarked=re.compile(r"weight\.bin"), companion=("../model.mlmodel", _ANY)),
    FileFormat("weights of Core ML", unmarked=re.compile(r"weight\.bin"), companion=("../model.mil", _ANY)),
    FileFormat("weights of ncnn", unmarked=re.compile(r".+\.bin"), companion=("*.param", re.compile(rb"^7767517\s"))),
    FileFormat("weights of OpenVINO", unmarked=re.compile(r".+\.bin"), companion=("*.xml", re.compile(rb"<net\s"))),
    FileFormat(_RAW, unmarked=re.compile(r".+\.(?:b?f16|f32|f64|b?float16|float32|float64|memmap|mmap|fbin|weights)")),
    FileFormat(_RAW, unmarked=re.compile(r"output_\d+\.bin")),  # msit: outputs of an offline model
    FileFormat(
        _RAW,
        unmarked=re.compile(r".+\.(?:dat|bin|raw)"),
        companion=("*.json", re.compile(rb'(?=.*"dtype")(?=.*"shape")', re.DOTALL)),
    ),
)
"""All formats, in the order in which they are tried: formats with a mark first."""
