"""Writing what the user asked for: whole or not at all, never over something else, never into the dump."""

from __future__ import annotations

import io
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, TextIO

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import TdbgError
from tui_debugger.model import Progress, ProgressFn, no_progress

_AGAIN = "choose another directory"
_PIECE = 1 << 20
"""Elements that are written together."""


def save_npy(
    values: npt.NDArray[Any], path: Path, dump: Path, *, force: bool = False, progress: ProgressFn = no_progress
) -> Path:
    """Writes an array as .npy and returns the path written.

    bfloat16 and fp8 arrays, which .npy has no name for, are written as float32 (exact for all of them).

    Args:
        values: the array.
        path: where to; ``.npy`` is added when it is missing.
        dump: directory that nothing is written into.
        force: an existing file may be replaced.
        progress: called now and then; nothing is left behind when it raises.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    target = path.expanduser()
    if target.suffix != ".npy":
        target = target.with_name(target.name + ".npy")
    with fresh_file(target, dump, force=force, what="the tensor") as file:
        write_npy(file, values, progress)
    return target


def write_npy(file: IO[bytes], values: npt.NDArray[Any], progress: ProgressFn = no_progress) -> None:
    """Writes an array in .npy format, big ones piece by piece: also what has to be converted is never there whole."""
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


def storable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as a type that .npy can name: bfloat16 and fp8 as float32, which holds them exactly."""
    added = values.dtype.isbuiltin == 2  # not 0, which numpy's own types of the other byte order say
    return values.astype(np.float32) if added else values


@contextmanager
def fresh_file(path: Path, dump: Path, *, force: bool = False, what: str = "the file") -> Iterator[BinaryIO]:
    """A new binary file that appears under its name when all is written, and not at all when something fails.

    Args:
        path: where to.
        dump: directory that nothing is written into.
        force: an existing file may be replaced.
        what: what is being written, for the error.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    target = checked_target(path, dump, force=force)
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
            part.unlink(missing_ok=True)


@contextmanager
def fresh_text(path: Path, dump: Path, *, force: bool = False) -> Iterator[TextIO]:
    """As ``fresh_file``, for text in UTF-8; what is no Unicode (names of bytes) is written with escapes.

    Raises:
        TdbgError: as ``fresh_file``.
    """
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

    Args:
        path: where to; it may exist when it is empty.
        dump: directory that nothing is written into.
        force: it may hold files; those of the same name are replaced, the others stay.

    Raises:
        TdbgError: it is no empty directory, lies inside the dump, or cannot be written.
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
        if target.exists() and any(target.iterdir()):
            _merge(part, target)
        else:
            part.rename(target)
    except OSError as error:
        _refuse(error, target, "the directory")
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def checked_target(path: Path, dump: Path, *, force: bool = False, hint: str = "choose another name") -> Path:
    """Tells where to write, if that is allowed at all.

    Args:
        path: as it was given.
        dump: what is never written into.
        force: whether something that is there may be replaced.
        hint: what to do about something that is there.

    Raises:
        TdbgError: it exists already, or lies inside the dump.
    """
    target = path.expanduser()
    try:
        inside = dump.resolve() in (target.resolve(), *target.resolve().parents)
        exists = target.is_symlink() or target.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise TdbgError(f"not a usable path: {error}", where=str(target), hint="choose another name") from None
    if inside:
        raise TdbgError("a dump is never written to", where=str(target), hint="choose a path outside the dump")
    if exists and not force:
        raise TdbgError("the file exists already", where=str(target), hint=hint)
    return target


def _put(part: Path, target: Path, force: bool) -> None:
    """Gives the finished file its name; without ``force`` it never replaces one that appeared meanwhile."""
    if force:
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
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")


def _refuse(error: OSError, target: Path, what: str) -> NoReturn:
    if isinstance(error, FileExistsError):
        raise TdbgError("the file exists already", where=str(target), hint="choose another name") from None
    reason = error.strerror or str(error)
    raise TdbgError(f"{what} could not be written: {reason}", where=str(target), hint=_hint(error)) from None


def _hint(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "make the directory first, or choose another one"
    return _AGAIN
