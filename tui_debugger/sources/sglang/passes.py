"""The outputs of every pass that SGLang's option ``--debug-tensor-dump-output-folder`` writes, as a Source.

A pass is a step, its file a dictionary of the outputs of modules in the order in which they ran. What the outermost
module, the head and the processor of logits made of a pass is written only with the next one: it stands first in the
file of that, and is moved to its own pass here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ProgressFn, Side, UnreadablePart
from tui_debugger.sources.base import RankPlaces
from tui_debugger.sources.graphless import state_of_files
from tui_debugger.sources.sglang.layout import PASS, PASS_RANK
from tui_debugger.sources.torch_dumps import Layout, Listing, Recorded, TorchDumpSource, module_tensor
from tui_debugger.stats.torch_file import Tree, member_of, read_tree

_LATE: Final = ("model", "lm_head", "logits_processor")
"""Modules whose outputs are written with the next pass."""
_FED: Final = "model.forward_batch_info."
"""The prefix of the inputs of a pass, which are written after its outputs."""
_NAMED: Final = 3


class PassSource(TorchDumpSource):
    """See ``base.Source``."""

    layout = "SGLang passes"

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        """See ``TorchDumpSource``."""
        self._lacking: dict[int, str] = {}
        self._numbers: dict[int, tuple[int, int]] = {}
        super().__init__(root, given, notices)

    def _find(self) -> Layout:
        layout = Layout(os.fspath(self._root))
        processes: dict[int, list[str]] = {}
        for name in layout.names(layout.root):
            match = PASS_RANK.fullmatch(name)
            if match is not None:
                processes.setdefault(int(match[3]), []).append(name)
        for rank, found in processes.items():
            name = self._chosen(layout, rank, found)
            self._find_passes(layout, rank, name)
            match = PASS_RANK.fullmatch(name)
            if match is not None and rank in layout.units:
                self._numbers[rank] = int(match[1]), int(match[2])
        layout.sort()
        self._lacking = {}
        return layout

    def _chosen(self, layout: Layout, rank: int, names: list[str]) -> str:
        """Returns the directory of a rank: the one that was opened, else the first one; a notice names the others."""
        given = Path(os.path.abspath(self._given))  # noqa: PTH100 - keeps links
        inside = [name for name in names if given.is_relative_to(os.path.abspath(self._root / name))]  # noqa: PTH100
        chosen = (inside or names)[0]
        for name in names:
            if name != chosen and not inside:
                layout.miss(f"{layout.root}/{name}", f"another process of rank {rank}: open it by itself", rank)
        return chosen

    def _find_passes(self, layout: Layout, rank: int, name: str) -> None:
        path = f"{layout.root}/{name}"
        names = layout.names(path, rank)
        found = {int(match[1]): f"{path}/{each}" for each in names if (match := PASS.fullmatch(each))}
        if found:
            layout.units[rank] = {step: (file, found.get(step + 1, "")) for step, file in found.items()}

    def _own(self, files: tuple[str, ...]) -> tuple[str, ...]:
        return files[:1]

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """The place that the name of the directory of a rank says: among tensor-parallel ranks and pipeline stages."""
        with self._lock:
            sizes = [max(numbers, default=0) + 1 for numbers in zip(*self._numbers.values(), strict=True)]
            found = zip(("tp", "pp"), self._numbers.get(rank, ()), sizes, strict=False)
            return {axis: (number, size) for axis, number, size in found}, "names of directories"

    def _layout_notices(self) -> Iterable[str]:
        yield from super()._layout_notices()
        for rank, lacking in self._lacking.items():
            yield f"the last pass of rank {rank} lacks {lacking}: their outputs are written with the next pass"

    def _list(self, rank: int, step: int, files: tuple[str, ...], progress: ProgressFn) -> Listing:  # noqa: ARG002 - few files
        listing = Listing(state=state_of_files(path for path in files if path))
        where = os.path.relpath(files[0], self._root)
        own = self._read_pass(files[0], rank, step, listing)
        late, mine = _split(own) if step else ([], own)
        if late and step - 1 not in self._layout.units[rank]:
            told = ", ".join(dict.fromkeys(each.node for each in late[:_NAMED]))
            why = f"{told} in it are of pass {step - 1}, whose own file is missing"
            listing.parts.append(UnreadablePart(where, why, rank, step))
        fed = [each for each in mine if each.node.startswith(_FED)]
        listing.tensors = fed + [each for each in mine if not each.node.startswith(_FED)]
        if files[1]:
            listing.tensors += _split(self._read_pass(files[1], rank, step, listing, of_next=True))[0]
        elif step == max(self._layout.units[rank]):
            self._lacking[rank] = ", ".join(dict.fromkeys(each.node for each in late)) or ", ".join(_LATE)
        else:
            why = f"pass {step + 1} has no file, and with it outputs of this pass"
            listing.parts.append(UnreadablePart(where, why, rank, step))
        return listing

    def _read_pass(self, path: str, rank: int, step: int, listing: Listing, of_next: bool = False) -> list[Recorded]:
        try:
            tree = read_tree(path)
        except UnreadableTensorError as error:
            why = f"{error.what}; outputs of pass {step} are in it" if of_next else error.what
            listing.parts.append(UnreadablePart(os.path.relpath(path, self._root), why, rank, step))
            return []
        return _tensors(tree, path)


def _tensors(tree: Tree, path: str) -> list[Recorded]:
    """Returns the outputs in the order of the file; of a module with several these are its slots."""
    found: list[Recorded] = []
    counts: dict[str, int] = {}
    for place, _ in tree.tensors:
        module = str(place[0]) if place else ""
        slot = counts[module] = counts.get(module, -1) + 1
        found.append(module_tensor(module, Side.OUTPUT, slot, path, member_of(place)))
    return found


def _split(tensors: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Returns the outputs of the pass before, which stand first in a file, and the others."""
    end = next((at for at, each in enumerate(tensors) if not _is_late(each.node)), len(tensors))
    return list(tensors[:end]), list(tensors[end:])


def _is_late(node: str) -> bool:
    return node in _LATE or node.startswith(tuple(f"{name}." for name in _LATE[1:]))
