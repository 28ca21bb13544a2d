"""Lists the tensors of one file of any format: .npy, .npz, files of torch.save, .safetensors.

One file stands for a checkpoint of which many ranks wrote a part each: its index, or the first of its shards.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.sources.tensor_files.layout import INDEX, LOG_OF_TRAINER, is_array, is_shard
from tui_debugger.stats.dtensor import TensorPart
from tui_debugger.stats.formats import TEXT, Holds, format_of_name, may_hold_tensors
from tui_debugger.stats.npy import array_keys, look_at
from tui_debugger.stats.safetensors import read_header

_WHOLE: Final = re.compile(
    r"(?:(?:pytorch_|adapter_|diffusion_pytorch_)?model|consolidated|checkpoint|ckpt|state_dict|weights)"
    r"(?:[-_.]\d{1,5}(?:[-_]of[-_]\d{1,5})?)?",
    re.IGNORECASE,
)
"""Names of files with a model, or with an arbitrary part of one: they are no part of a tensor's name."""

LOG_FORMAT: Final = "log"
"""The name in ``npy.FORMATS`` of numbers of a training's log."""
_NPZ, _PT, _SAFETENSORS, _DCP, _SHARDS = (ReadSpec("", form) for form in ("npz", "pt", "safetensors", "dcp", "shards"))


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of a file."""

    place: tuple[str, ...]
    """Keys that lead to it; empty for the only tensor of a file."""
    spec: ReadSpec
    """How it is read, without path and member; with a path where it lies in another file."""
    part: TensorPart | None = None
    """Which part of a larger tensor it is; None: whole, or unknown."""
    nbytes: int = -1
    """Bytes of its values; -1: unknown."""
    member: str = ""

    @property
    def key(self) -> str | None:
        """The place as one name; None for an empty place."""
        return "/".join(self.place) if self.place else None


def held_by(path: str) -> list[FileTensor]:
    """The tensors of a file, in its order; raises UnreadableTensorError.

    Where the name tells no format, or a wrong one, the bytes decide.
    """
    folder, name = os.path.split(path)
    if name == INDEX:
        return list(_indexed(path))
    if is_shard(name):
        return list(_in_pieces(folder))
    by_name = _lister_of(name)
    if by_name is None:
        return _held_by_its_bytes(path)
    try:
        return list(by_name(path))
    except UnreadableTensorError:
        found = look_at(path)
        if found == TEXT:
            return []
        if found.holds is not Holds.TENSORS or _LISTERS.get(found.reader) is by_name:
            raise
        return _held_by_its_bytes(path)


class SavedNumbers(NamedTuple):
    """The numbers of a file that are no tensors."""

    apart: list[str]
    """Places of numbers that are not finite: settings, such as limits."""
    finite: Mapping[tuple[Any, ...], int | float]
    """Other numbers, such as learning rates, by place."""


def numbers_of(path: str) -> SavedNumbers:
    lister = _lister_of(os.path.basename(path))  # noqa: PTH119 - text all the way
    try:
        if lister is _saved_by_torch:
            from tui_debugger.stats.torch_file import read_tree  # only for such files

            tree = read_tree(path)
            return SavedNumbers(["/".join(map(str, place)) for place, _ in tree.apart], tree.numbers)
        if lister is _logged:
            from tui_debugger.stats.training_log import read_log  # as above

            log = read_log(path)
            return SavedNumbers(["/".join(map(str, place)) for place, _ in log.apart], log.numbers)
    except UnreadableTensorError:
        pass  # listing the file reports it
    return SavedNumbers([], {})


def _held_by_its_bytes(path: str) -> list[FileTensor]:
    """The tensors of a file of any name; none of a file that holds none, or of unknown format."""
    found = look_at(path)
    if found.reader in _LISTERS:
        return list(_LISTERS[found.reader](path))
    if found.holds in (Holds.TENSORS, Holds.DOUBT):
        raise UnreadableTensorError(found.why or f"is {found.format}, which is not read yet", where=path)
    return []


def _lister_of(name: str) -> _List | None:
    """The function that lists the tensors of a file with this name; None: the name does not tell."""
    if name == LOG_OF_TRAINER:
        return _logged
    called = format_of_name(name)
    if called is not None:
        return _LISTERS.get(called.reader)
    return _saved_by_torch if is_array(name) else None


def is_read(path: str) -> bool:
    """Whether ``held_by`` may find named tensors in a file."""
    return may_hold_tensors(path) and _lister_of(os.path.basename(path)) is not _array  # noqa: PTH119 - as there


def is_whole(stem: str) -> bool:
    """Whether a file with this stem holds a model: its name is no part of the names of the tensors in it."""
    return _WHOLE.fullmatch(stem) is not None


def holds_several(path: str) -> bool:
    """Whether a file has a directory of its tensors, which may change while its name stays."""
    return not path.lower().endswith(".npy")


def _array(_: str) -> Iterator[FileTensor]:
    yield FileTensor((), ReadSpec(""))


def _of_atb(_: str) -> Iterator[FileTensor]:
    yield FileTensor((), ReadSpec("", "atb"))


def _archive(path: str) -> Iterator[FileTensor]:
    for key, nbytes in array_keys(path).items():
        yield FileTensor((key,), _NPZ, nbytes=nbytes, member=key)


def _saved_by_torch(path: str) -> Iterator[FileTensor]:
    from tui_debugger.sources.tensor_files.zero_partitions import named_ranges, place_of  # only for such files
    from tui_debugger.stats.torch_file import member_of, member_of_range, read_tree

    tree = read_tree(path)
    named = named_ranges(path, tree)
    for place, ref in tree.tensors:
        for each in named.get(place, ()):
            member = member_of_range(place, each.start, each.shape)
            nbytes = ref.nbytes // ref.shape[0] * math.prod(each.shape)
            yield FileTensor(place_of(place, each.name), _PT, each.part, nbytes, member)
        if place not in named:
            yield FileTensor(tuple(map(str, place)), _PT, ref.part, ref.nbytes, member_of(place))


def _logged(path: str) -> Iterator[FileTensor]:
    from tui_debugger.stats.torch_file import member_of  # only for such files
    from tui_debugger.stats.training_log import read_log

    for place, _ in read_log(path).tensors:
        yield FileTensor(tuple(map(str, place)), ReadSpec("", LOG_FORMAT), member=member_of(place))


def _safetensors(path: str) -> Iterator[FileTensor]:
    for name, nbytes in read_header(path).specs.sizes():
        yield FileTensor((name,), _SAFETENSORS, nbytes=nbytes, member=name)


def _indexed(path: str) -> Iterator[FileTensor]:
    from tui_debugger.stats.sharded import read_index  # only for such files
    from tui_debugger.stats.torch_file import member_of, read_tree

    index = read_index(path)
    for name in index.tensors:
        yield FileTensor((name,), _DCP, member=name)
    for name, where in index.objects.items():
        if isinstance(where, str):  # reading the tensor reports it
            yield FileTensor((name,), _DCP, member=name)
            continue
        try:
            found = read_tree(where.path, (where.offset, where.length)).tensors
        except UnreadableTensorError:
            yield FileTensor((name,), where)
            continue
        for place, _ in found:
            yield FileTensor((name, *map(str, place)), where, member=member_of(place))


def _in_pieces(folder: str) -> Iterator[FileTensor]:
    from tui_debugger.stats.sharded import read_shards  # only for such files

    yield from (FileTensor((name,), _SHARDS, member=name) for name in read_shards(folder))


_List = Callable[[str], Iterator[FileTensor]]
_LISTERS: Final[dict[str, _List]] = {
    "npy": _array,
    "atb": _of_atb,
    "npz": _archive,
    "pt": _saved_by_torch,
    "safetensors": _safetensors,
}
"""By the name of the format in ``npy.FORMATS``."""
