"""Lists the tensors of one file, whatever its format: .npy, .npz, what torch saved, .safetensors.

Of a checkpoint that many ranks wrote a part of, one file stands for all: its index, or the first of its shards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tui_debugger.model import ReadSpec
from tui_debugger.sources.tensor_files.layout import INDEX, is_shard
from tui_debugger.stats.npy import array_keys
from tui_debugger.stats.safetensors import read_header

_WHOLE: Final = re.compile(
    r"(?:(?:pytorch_|adapter_|diffusion_pytorch_)?model|consolidated|checkpoint|ckpt|state_dict|weights)"
    r"(?:[-_.]\d{1,5}(?:[-_]of[-_]\d{1,5})?)?",
    re.IGNORECASE,
)
"""Names of files that hold the model, or a part of it that was cut as was convenient: no part of a tensor's name."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of a file.

    Attributes:
        place: the keys that lead to it; empty: the file holds nothing else.
        spec: how it is read, without the path.
    """

    place: tuple[str, ...]
    spec: ReadSpec

    @property
    def key(self) -> str | None:
        """The place as one name; None where there is none."""
        return "/".join(self.place) if self.place else None


def held_by(path: str) -> list[FileTensor]:
    """Returns the tensors of a file, in its order.

    Raises:
        UnreadableTensorError: the file cannot be read.
    """
    folder, name = os.path.split(path)
    if name == INDEX:
        return list(_indexed(path))
    if is_shard(name):
        return list(_in_pieces(folder))
    return list(_LISTERS[os.path.splitext(name)[1].lower()](path))  # noqa: PTH122 - text all the way, for many


def is_read(path: str) -> bool:
    """Tells whether a file is of a format with names of tensors in it that ``held_by`` lists."""
    suffix = os.path.splitext(path)[1].lower()  # noqa: PTH122 - as there
    return suffix in _LISTERS and suffix != ".npy"


def is_whole(stem: str) -> bool:
    """Tells whether a file of that name (without suffix) holds a model: its name says nothing of the tensors in it."""
    return _WHOLE.fullmatch(stem) is not None


def holds_several(path: str) -> bool:
    """Tells whether a file has a directory of its tensors, which may change while its name stays."""
    return not path.lower().endswith(".npy")


def _array(_: str) -> Iterator[FileTensor]:
    yield FileTensor((), ReadSpec(""))


def _archive(path: str) -> Iterator[FileTensor]:
    for key in array_keys(path):
        yield FileTensor((key,), ReadSpec("", "npz", member=key))


def _saved_by_torch(path: str) -> Iterator[FileTensor]:
    from tui_debugger.stats.torch_file import member_of, read_tree, tensors  # not where there are none

    for place, _ in tensors(read_tree(path)):
        yield FileTensor(tuple(str(key) for key in place), ReadSpec("", "pt", member=member_of(place)))


def _safetensors(path: str) -> Iterator[FileTensor]:
    for name in read_header(path).specs:
        yield FileTensor((name,), ReadSpec("", "safetensors", member=name))


def _indexed(path: str) -> Iterator[FileTensor]:
    from tui_debugger.stats.sharded import read_index  # not where there are none

    for name in read_index(path):
        yield FileTensor((name,), ReadSpec("", "dcp", member=name))


def _in_pieces(folder: str) -> Iterator[FileTensor]:
    from tui_debugger.stats.sharded import read_shards  # not where there are none

    yield from (FileTensor((name,), ReadSpec("", "shards", member=name)) for name in read_shards(folder))


_LISTERS: Final[dict[str, Callable[[str], Iterator[FileTensor]]]] = {
    ".npy": _array,
    ".npz": _archive,
    ".pt": _saved_by_torch,
    ".pth": _saved_by_torch,
    ".bin": _saved_by_torch,
    ".ckpt": _saved_by_torch,
    ".pkl": _saved_by_torch,
    ".safetensors": _safetensors,
}
