"""Writes the files that the user asked for: whole or not at all, never over other files, never into the dump.

Tensors go into one .npz, a directory of .npy, or one .csv; at most one tensor is in memory.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, NoReturn, TextIO

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array
from tui_debugger.check.sweep import SweptTensor
from tui_debugger.errors import TdbgError, UnreadableTensorError, reason_of
from tui_debugger.model import Progress, ProgressFn, TensorKey, TensorMeta, no_progress
from tui_debugger.stats.npy import open_lazily, read_meta
from tui_debugger.text.rows import key_row
from tui_debugger.text.spreadsheets import CsvTable
from tui_debugger.text.tensors import place_text
from tui_debugger.text.values import apply, parse_slice

_AGAIN = "choose another directory"
_PIECE = 1 << 20
"""Elements that are written together."""


def save_npy(values: Array, path: Path, dump: Path, *, force: bool = False, progress: ProgressFn = no_progress) -> Path:
    """Writes an array as .npy and returns the path written; ``.npy`` is added. Errors as of ``fresh_file``."""
    target = path.expanduser()
    if target.suffix != ".npy":
        target = target.with_name(target.name + ".npy")
    with fresh_file(target, dump, force=force, what="the tensor") as file:
        write_npy(file, values, progress)
    return target


def write_npy(file: IO[bytes], values: Array, progress: ProgressFn = no_progress) -> None:
    """Writes an array in .npy format piece by piece, so that a converted copy is never in memory as a whole."""
    if values.dtype.hasobject:
        raise ValueError("Python objects are never written")
    fortran = values.flags.f_contiguous and not values.flags.c_contiguous
    kept = storable(values[(slice(0, 0),) * values.ndim] if values.ndim else values).dtype
    header = {"descr": np.lib.format.dtype_to_descr(kept), "fortran_order": fortran, "shape": values.shape}
    np.lib.format.write_array_header_1_0(file, header)
    ordered = values.T if fortran else values
    flat = ordered.reshape(-1) if ordered.flags.c_contiguous else ordered.flat
    for start in range(0, values.size, _PIECE):
        progress(Progress(start, values.size, "writing"))
        file.write(flat[start : start + _PIECE].astype(kept).tobytes())


def storable(values: Array) -> Array:
    """The array in a type that .npy can name: bfloat16 and fp8 as float32, which holds them exactly."""
    added = values.dtype.isbuiltin == 2  # a type of ml_dtypes; numpy's own types of the other byte order have 0
    return values.astype(np.float32) if added else values


@contextmanager
def fresh_file(path: Path, dump: Path | None, *, force: bool = False, what: str = "the file") -> Iterator[BinaryIO]:
    """A new binary file that appears under its name when all is written, and not at all when something fails.

    A replaced file passes its permissions on. Raises TdbgError when the file exists (without ``force``), is a link,
    lies inside the dump, or cannot be written.
    """
    target = checked_target(path, dump, force=force)
    if target.is_dir():
        raise TdbgError("a directory in place of a file", where=str(target), hint="choose another name")
    part: Path | None = None
    try:
        name = _part_of(target)
        with name.open("xb") as file:
            part = name
            yield file
        _put(part, target, force)
        part = None
    except OSError as error:
        _refuse(error, target, what)
    finally:
        if part is not None:
            with suppress(OSError):  # for example on a disk that became read-only; the first error is the one to report
                part.unlink(missing_ok=True)


@contextmanager
def fresh_text(path: Path, dump: Path | None, *, force: bool = False) -> Iterator[TextIO]:
    """Like ``fresh_file``, for text in UTF-8; surrogates (names of bytes) are written with escapes."""
    with fresh_file(path, dump, force=force) as raw:
        file = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="")
        try:
            yield file
            file.flush()
        finally:
            file.detach()


@contextmanager
def fresh_directory(path: Path, dump: Path, *, force: bool = False) -> Iterator[Path]:
    """A directory to be filled, whose files appear under ``path`` together when all are written.

    With ``force`` the target may hold files: files of the same name are replaced, the others stay. Raises TdbgError
    when the target is no empty directory, lies inside the dump, or cannot be written.
    """
    target = checked_target(path, dump, force=True)
    part: Path | None = None
    try:
        if target.exists() and (not target.is_dir() or (not force and any(target.iterdir()))):
            what = "the directory is not empty" if target.is_dir() else "there is a file of that name"
            raise TdbgError(what, where=str(target), hint="choose another name")
        name = _part_of(target)
        name.mkdir()
        part = name
        yield part
        if target.exists() and (any(target.iterdir()) or target.samefile(Path.cwd())):
            _merge(part, target)  # renaming over the working directory would leave its users in a deleted directory
        else:
            part.rename(target)
    except OSError as error:
        _refuse(error, target, "the directory")
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def checked_target(path: Path, dump: Path | None, *, force: bool = False, hint: str = "choose another name") -> Path:
    """Returns the expanded path.

    Raises TdbgError if it exists, is a device, a pipe, or a link to a file, or lies inside the dump.
    """
    target = path.expanduser()
    try:
        whole = target.resolve()
        inside = dump is not None and dump.resolve() in (whole, *whole.parents)
        exists = target.is_symlink() or target.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise TdbgError(f"not a usable path: {error}", where=str(target), hint="choose another name") from None
    if inside:
        raise TdbgError("a dump is never written to", where=str(target), hint="choose a path outside the dump")
    if exists and (special := _special(target)):  # replacing /dev/null would harm every process
        raise TdbgError(f"{special}: never replaced", where=str(target), hint="choose another name")
    if exists and not force:
        raise TdbgError("the file exists already", where=str(target), hint=hint)
    if target.is_symlink() and not target.is_dir():  # the user named the link, and may not know the file
        raise TdbgError("a link in place of a file: never written through", where=str(target), hint=f"name {whole}")
    return target


def _special(target: Path) -> str:
    """Names a device or pipe at the target; empty for a file, a directory, or a link that leads nowhere."""
    if os.path.realpath(target.parent) == "/dev":  # /dev/stdout leads to a file at times
        return "a device in place of a file"
    plain = target.is_file() or target.is_dir() or not target.exists()
    return "" if plain else opener.why_not(target, wanted="a file")


def _put(part: Path, target: Path, force: bool) -> None:
    """Gives the finished file its name; without ``force`` it never replaces a file that appeared meanwhile."""
    if force:
        with suppress(OSError):  # nothing is there, or the file system knows no rights
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
        return
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(target) from None
        part.rename(target)
    else:
        part.unlink()


def _merge(part: Path, target: Path) -> None:
    for source in sorted(path for path in part.rglob("*") if not path.is_dir()):
        place = target / source.relative_to(part)
        place.parent.mkdir(parents=True, exist_ok=True)
        source.replace(place)


def _part_of(target: Path) -> Path:
    """A hidden name beside the target, on the same file system."""
    whole = target.resolve() if target.name in {"", ".."} else target
    return whole.parent / f".{whole.name[:40]}.{secrets.token_hex(4)}.part"


def _refuse(error: OSError, target: Path, what: str) -> NoReturn:
    if isinstance(error, FileExistsError):
        raise TdbgError("the file exists already", where=str(target), hint="choose another name") from None
    raise TdbgError(f"{what} could not be written: {reason_of(error)}", where=str(target), hint=_hint(error)) from None


def _hint(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "make the directory first, or choose another one"
    return _AGAIN


INDEX = "index.csv"
"""The table that says which file of a directory holds which tensor."""
_KEY_COLUMNS = ("rank", "step", "graph", "node", "side", "slot", "round")
_ROWS = 8192
"""Values that are turned into text together."""
_LONGEST = 200
"""Bytes of one component of a path; most file systems allow 255."""
_UNSAFE = re.compile(
    '[\x00-\x1f\x7f-\x9f%\\\\:*?"<>|\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]|^/+|/+$|/+(?=/)'
)
"""Characters that some file system, terminal or archive program cannot take, and slashes that separate nothing."""


@dataclass
class ExportResult:
    """The result of an export; ``failures`` holds (tensor, why it is missing)."""

    path: Path
    tensors: int = 0
    nbytes: int = 0
    failures: list[tuple[TensorKey, str]] = field(default_factory=list)


def tensor_path(key: TensorKey, *, with_graph: bool = False) -> str:
    """``rank0/step3/Default/network-Net/fc1-Dense/MatMul-op1``: the place of a tensor's node in an export.

    Characters that file systems refuse are written as ``%`` and two hexadecimal digits (``urllib.parse.unquote``). A
    component that is too long for a file name ends with ``~`` and a checksum instead. ``with_graph`` adds the graph,
    for ranks with several graphs, in which a name may occur twice.
    """
    node = safe_path(key.node)
    graph = f"{safe_path(key.graph.replace('/', '_'))}/" if with_graph else ""
    return f"rank{key.rank}/step{key.step}/{graph}{node}"


def _round(key: TensorKey) -> str:
    """``.round1`` for a tensor that was written several times in its step."""
    return f".round{key.round}" if key.round else ""


def safe_path(name: str) -> str:
    """A name as path components that every file system takes; no component leads to another directory."""
    parts = _UNSAFE.sub(_quoted, name).split("/")
    return "/".join(_short(part.replace(".", "%2E") if part in {"", ".", ".."} else part) for part in parts)


def _quoted(match: re.Match[str]) -> str:
    try:
        raw = match.group().encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = match.group().encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in raw)


def _short(part: str) -> str:
    raw = part.encode()
    if len(raw) <= _LONGEST:
        return part
    return f"{raw[: _LONGEST - 17].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()[:16]}"


def write_npz(
    tensors: Iterable[SweptTensor], path: Path, dump: Path, *, with_graph: bool = False, force: bool = False
) -> ExportResult:
    """Writes tensors into one uncompressed .npz, named ``rank0/step3/NODE:out:0`` (see ``tensor_path``).

    Raises TdbgError as ``fresh_file`` does, and when no tensor could be read.
    """
    written = ExportResult(path)
    with fresh_file(path, dump, force=force) as file, zipfile.ZipFile(file, "w") as archive:
        for tensor, _, values in _readable(tensors, written):
            key = tensor.key
            name = f"{tensor_path(key, with_graph=with_graph)}:{key.side.label}:{key.slot}{_round(key)}.npy"
            with archive.open(name, "w", force_zip64=True) as member:
                write_npy(member, values)
        _check_any(written)
    return written


def write_directory(
    tensors: Iterable[SweptTensor], path: Path, dump: Path, *, with_graph: bool = False, force: bool = False
) -> ExportResult:
    """Writes one .npy per tensor, ``rank0/step3/NODE.out.0.npy``, and an ``index.csv``; errors as of ``write_npz``."""
    written = ExportResult(path)
    with fresh_directory(path, dump, force=force) as directory:
        with (directory / INDEX).open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            index = CsvTable(file)
            index.row(("file", *_KEY_COLUMNS, "dtype", "stored", "shape", "error"))
            for tensor, meta, values in _readable(tensors, written, index):
                key = tensor.key
                name = f"{tensor_path(key, with_graph=with_graph)}.{key.side.label}.{key.slot}{_round(key)}.npy"
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                kept = storable(values)
                with (directory / name).open("xb") as out:
                    write_npy(out, kept)
                index.row((name, *key_row(key).values(), meta.dtype, kept.dtype.name, meta.shape, ""))
        _check_any(written)
    return written


def write_csv(tensor: SweptTensor, path: Path, dump: Path, *, window: str = "", force: bool = False) -> ExportResult:
    """Writes the values of one tensor as text that reads back as exactly the same values.

    Without a window there is a row per element: its index, a column per dimension, and its value. A window (slice
    text) with two free dimensions is written as a matrix with the indices as titles. BadSliceError: the window does not
    fit.
    """
    meta, values = _opened(tensor)
    rows = _window_rows(values, window) if window else _element_rows(values)
    with fresh_text(path, dump, force=force) as file:
        CsvTable(file).rows(rows)
    return ExportResult(path, 1, meta.nbytes)


def _opened(tensor: SweptTensor) -> tuple[TensorMeta, Array]:
    if tensor.spec is None:
        raise UnreadableTensorError("only statistics of this tensor were dumped", where=tensor.key.node)
    return read_meta(tensor.spec), open_lazily(tensor.spec)


def _readable(
    tensors: Iterable[SweptTensor], written: ExportResult, index: CsvTable | None = None
) -> Iterator[tuple[SweptTensor, TensorMeta, Array]]:
    """The tensors with their values; tensors that cannot be read go to ``written.failures``."""
    for tensor in tensors:
        try:
            meta, values = _opened(tensor)
        except (UnreadableTensorError, MemoryError) as error:
            reason = error.what if isinstance(error, UnreadableTensorError) else "does not fit into memory"
            written.failures.append((tensor.key, reason))
            if index is not None:
                index.row(("", *key_row(tensor.key).values(), "", "", "", reason))
            continue
        yield tensor, meta, values
        written.tensors += 1
        written.nbytes += meta.nbytes


def _check_any(written: ExportResult) -> None:
    if not written.tensors:
        if not written.failures:
            raise TdbgError("no tensor was chosen", where=str(written.path), hint="choose other nodes, steps or ranks")
        key, reason = written.failures[0]
        raise TdbgError(
            f"no tensor can be exported, the first one because: {reason}",
            where=f"rank {key.rank} step {key.step} {place_text(key)}",
            hint="`tdbg stat` lists what is known about them",
        )


def _element_rows(values: Array) -> Iterator[Sequence[object]]:
    yield (*(f"i{n}" for n in range(values.ndim)), "value")
    for start in range(0, values.size, _ROWS):
        stop = min(start + _ROWS, values.size)
        indices = np.unravel_index(np.arange(start, stop), values.shape) if values.ndim else ()
        yield from zip(*(column.tolist() for column in indices), _texts(values.flat[start:stop]), strict=True)


def _window_rows(values: Array, text: str) -> Iterator[Sequence[object]]:
    window = parse_slice(text, values.shape)
    cut = apply(values, window)
    free = [entry for entry in window.entries if isinstance(entry, range)]
    if len(free) < 2:
        yield (*(f"i{n}" for n in window.free), "value")
        yield from zip(*free, _texts(cut.reshape(-1)), strict=True)
        return
    yield (window.text, *free[1])
    for row, cells in zip(free[0], cut, strict=True):
        yield (row, *_texts(cells))


def _texts(values: Array) -> list[str]:
    """The shortest text of each value that reads back as the same value of its type."""
    texts: list[str] = storable(values).astype(np.str_).tolist()
    return texts
