"""Compares a tensor with another one: of another step, rank, node or run, or in a file."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tui_debugger.arrays import Array
from tui_debugger.check.progress import retry_when_renumbered, scaled
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.errors import CancelledError, TdbgError, UnreadableTensorError
from tui_debugger.model import ProgressFn, ReadSpec, TensorKey, TensorMeta, no_progress
from tui_debugger.stats.compare import TOP, Differences, compare, rearranged, unit_of
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Fit, Pairs, count_outside, does_not_fit, fit_of
from tui_debugger.stats.dtypes import DType, dtype_of
from tui_debugger.stats.npy import open_array, read_meta
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import and_more, named
from tui_debugger.text.tensors import place_text, round_text, step_text

NEAREST: Final = 64
"""The number of steps around the asked one that are searched for the tensor."""


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """One of two tensors that are compared: a file, or a tensor of a run.

    ``key`` is None for a file. ``path`` is the file, or the path of the other run; empty for a tensor of this run.
    """

    key: TensorKey | None = None
    path: str = ""

    def text(self, beside: TensorKey | None = None, *, with_graph: bool = False) -> str:
        """The tensor in words; ``beside`` another tensor, only what differs."""
        if self.key is None:
            return clean(self.path)
        key, words = self.key, []
        if self.path:
            words.append(f"run {clean(self.path)}")
        if beside is None or replace(key, step=beside.step, rank=beside.rank, round=beside.round) != beside:
            words.append(
                clean(place_text(key, with_graph=with_graph or (beside is not None and beside.graph != key.graph)))
            )
        if beside is None or key.rank != beside.rank:
            words.append(f"rank {key.rank}")
        step = f"{step_text(key.step)}{round_text(key.round)}"
        return "  ".join([*words, step if key.step < 0 else f"step {step}"])


@dataclass(frozen=True, slots=True)
class ReadableSide:
    """A tensor whose values can be read; another process can read them by ``spec`` unless that is None."""

    side: ComparedTensor
    array: Array
    meta: TensorMeta
    spec: ReadSpec | None = None

    @property
    def meant(self) -> DType | None:
        """The type that the elements stand for: bfloat16 where it is kept in float32."""
        return dtype_of(self.meta.dtype)


@dataclass(frozen=True, slots=True)
class Couple:
    """Two tensors that can be read; ``pairs`` has their elements side by side, paired as ``fit`` tells."""

    here: ReadableSide
    there: ReadableSide
    pairs: Pairs
    fit: Fit

    @property
    def unit(self) -> DType | None:
        """The type whose units in the last place count; None without one."""
        return unit_of(self.pairs, (self.here.meant, self.there.meant))

    def compare(
        self, tolerance: Boundary = EXACT, top: int = TOP, progress: ProgressFn = no_progress
    ) -> tuple[Differences, str]:
        """How they differ, and a hint where one is only a rearrangement of the other."""
        types = (self.here.meant, self.there.meant)
        found = compare(self.pairs, tolerance=tolerance, top=top, types=types, progress=progress)
        return found, rearranged(self.here.array, self.there.array, found)

    def within(self, found: Differences, tolerance: Boundary, progress: ProgressFn = no_progress) -> Differences:
        """The same differences with another tolerance; recounts only the elements outside."""
        boundary = tolerance.boundary(found.difference)
        outside = count_outside(self.pairs, tolerance, boundary, progress)
        return replace(found, tolerance=tolerance, boundary=boundary, outside=outside)


class Comparer:
    """Finds and opens tensors to compare, also of other runs. Thread-safe."""

    def __init__(self, session: DiagnosedRun) -> None:
        self.session = session
        self._runs: dict[str, DiagnosedRun] = {}
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            runs, self._runs = self._runs, {}
        for run in runs.values():
            run.close()

    # -- which other side --------------------------------------------------------------------------

    def previous(self, key: TensorKey) -> ComparedTensor:
        """The tensor in the run before; for a weight that several graphs use, it may belong to another graph.

        TdbgError where it was not dumped there; the hint says where it was.
        """
        before = self.session.before(key)
        if before is None:
            raise TdbgError(
                f"there is no step before {step_text(key.step)}",
                where=clean(place_text(key)),
                hint=self._elsewhere(self.session, key, "compare with another step, rank, tensor or file"),
            )
        return ComparedTensor(before)

    def beside(self, side: ComparedTensor, by: int) -> ComparedTensor | None:
        """The tensor in the next run in a direction (-1, +1) where it has values; None without one."""
        if side.key is None:
            return None
        run, key = self.run_of(side), side.key
        ordered = retry_when_renumbered(lambda: _around(run, key, by))
        other = next((each for each in ordered[:NEAREST] if has_values(run, each)), None)
        return None if other is None else replace(side, key=other)

    def run_of(self, side: ComparedTensor, progress: ProgressFn = no_progress) -> DiagnosedRun:
        """The run of a tensor; opens other runs on first use. CancelledError after ``close``."""
        if not side.path or side.key is None:
            return self.session
        with self._lock:
            if self._closed:
                raise CancelledError("closed", where=side.path)
            run = self._runs.get(side.path)
            if run is None:
                run = self.session.another(Path(side.path))
                self._runs[side.path] = run
        run.open(progress)
        return run

    # -- reading -----------------------------------------------------------------------------------

    def couple(
        self, key: TensorKey, other: ComparedTensor, progress: ProgressFn = no_progress, *, reshape: bool = False
    ) -> Couple:
        """Opens both tensors, with different shapes only if ``reshape`` asks for it: see ``stats.compare_pairs.Fit``.

        TdbgError where one cannot be read or was not dumped (the hint says where it was), or the shapes do not fit.
        """
        here = self.opened(ComparedTensor(key), scaled(progress, 0, 2))
        there = self.opened(other, scaled(progress, 1, 2))
        fit = fit_of(here.meta.shape, there.meta.shape)
        if fit is None:
            raise does_not_fit(here.meta.shape, there.meta.shape)
        if fit is not Fit.SAME and not reshape:
            raise DifferentShapesError(here.meta.shape, there.meta.shape, fit)
        return Couple(here, there, Pairs(here.array, there.array, self.session.workers), fit)

    def opened(self, side: ComparedTensor, progress: ProgressFn = no_progress) -> ReadableSide:
        """A tensor with its values; UnreadableTensorError where it has none here (says where it has)."""
        if side.key is None:
            return _of_file(side)
        run = self.run_of(side, progress)
        if side.key.rank in run.around.ranks() and side.key.step in run.around.steps(side.key.rank):
            run.flow(side.key.rank, progress).table(side.key.step)  # this step may bring nodes that no step before has
        key = _known_as(run, side.key)
        if side.path and key.rank in run.around.ranks() and not _has_node(run, key):
            raise UnreadableTensorError(
                "the other run has no such node", where=side.text(), hint="name the tensor that it has instead"
            )
        if not has_values(run, key):
            raise self._missing(run, key)
        array = run.read(key, progress)
        spec = retry_when_renumbered(lambda: run.spec(key))
        meta = read_meta(spec) if spec is not None else TensorMeta(array.dtype.name, array.shape, array.nbytes)
        return ReadableSide(replace(side, key=key), array, meta, spec)

    def _missing(self, run: DiagnosedRun, key: TensorKey) -> UnreadableTensorError:
        steps = run.around.steps(key.rank) if key.rank in run.around.ranks() else ()
        what = f"this tensor has no values at step {step_text(key.step)}"
        if not steps:
            what = f"rank {key.rank} is not in this dump"
        elif key.step not in steps:
            what = f"step {step_text(key.step)} was not dumped"
        elif _has_node(run, key) and run.row_of(key).recorded:
            what = f"only statistics of this tensor were dumped at step {step_text(key.step)}, no values"
        advice = run.info.values_advice if _has_node(run, key) and run.row_of(key).recorded else ""
        otherwise = f"record values ({advice})" if advice else "choose another step, rank, tensor or file"
        hint = self._elsewhere(run, key, otherwise)
        return UnreadableTensorError(what, where=f"rank {key.rank} {clean(place_text(key))}", hint=hint)

    def _elsewhere(self, run: DiagnosedRun, key: TensorKey, otherwise: str) -> str:
        steps, ranks = steps_with(run, key), ranks_with(run, key)
        words = [f"rank {key.rank} has it at {named('step', steps)}"] if steps else []
        words += [f"at step {step_text(key.step)} it is in {named('rank', ranks)}"] if ranks else []
        return "; ".join(words) or otherwise


class DifferentShapesError(TdbgError):
    """The shapes differ, but their elements can be paired as ``fit`` tells, on request."""

    def __init__(self, here: tuple[int, ...], there: tuple[int, ...], fit: Fit) -> None:
        how = "element by element in C order" if fit is Fit.RESHAPED else "by stretching one over the other"
        super().__init__(
            "these tensors have different shapes",
            where=f"{here} and {there}",
            hint=f"they can be compared {how}, when that is meant: --reshape",
        )
        self.fit = fit


def has_values(run: DiagnosedRun, key: TensorKey) -> bool:
    """Tells whether the values of a tensor are available, from a file or a live training."""
    if key.rank not in run.around.ranks() or key.step not in run.around.steps(key.rank):
        return False
    return run.row_of(key).has_value


def _around(run: DiagnosedRun, key: TensorKey, by: int) -> list[TensorKey]:
    """A tensor in the runs before (-1) or after (+1) its own, the nearest first."""
    flow = run.flow(key.rank)
    row = flow.nodes.find(key.node, key.graph)
    if row < 0:
        return []
    turn = flow.turn(row, key.step, key.round)
    runs = [(flow.turn(row, *each) - turn, *each) for each in flow.runs_of(row)]
    nearest = sorted((each for each in runs if each[0] * by > 0), reverse=by < 0)
    return [replace(key, step=step, round=number) for _, step, number in nearest]


def steps_with(run: DiagnosedRun, key: TensorKey) -> list[int]:
    """Other steps at which a tensor has values, among those around its own."""
    if not _has_node(run, key):
        return []
    steps = sorted(run.around.steps(key.rank), key=lambda step: abs(step - key.step))[:NEAREST]
    return [step for step in sorted({*steps} - {key.step}) if has_values(run, replace(key, step=step))]


def ranks_with(run: DiagnosedRun, key: TensorKey) -> list[int]:
    others = [replace(key, rank=rank) for rank in run.around.ranks() if rank != key.rank][:NEAREST]
    return [other.rank for other in others if _has_node(run, other) and has_values(run, other)]


def _has_node(run: DiagnosedRun, key: TensorKey) -> bool:
    return key.rank in run.around.ranks() and run.nodes(key.rank).find(key.node, key.graph) >= 0


def _known_as(run: DiagnosedRun, key: TensorKey) -> TensorKey:
    """The tensor as a run names it: graphs of other runs and ranks may have other numbers."""
    if key.rank not in run.around.ranks():
        return key
    nodes = run.nodes(key.rank)
    if nodes.find(key.node, key.graph) >= 0:
        return key
    graphs = [info.name for info in nodes.graphs if nodes.find(key.node, info.name) >= 0]
    return replace(key, graph=graphs[0]) if graphs else key


def is_file(text: str) -> bool:
    return Path(_parts_of(text)[0]).is_file()


def _of_file(side: ComparedTensor) -> ReadableSide:
    spec = spec_in(side.path)
    return ReadableSide(side, open_array(spec), read_meta(spec), spec)


_LISTED: Final = 10
"""The most tensors of a file that are named."""


def spec_in(text: str) -> ReadSpec:
    """Returns how to read the tensor that ``FILE`` or ``FILE:NAME`` names; dots or slashes join the parts of a name.

    UnreadableTensorError where the file cannot be read, has no such tensor, or several.
    """
    from tui_debugger.sources.tensor_files.contents import held_by, is_read  # only needed where a file is named

    path, name = _parts_of(text)
    if not is_read(path):
        return ReadSpec(path)
    held = held_by(path)
    keys = {".".join(each.place): each for each in held}
    keys |= {each.key: each for each in held if each.key is not None}
    only = held[0] if len(held) == 1 else None
    found = keys.get(name) if name else only
    if found is not None:
        return found.spec.at(found.spec.path or path, found.member)
    names = [clean(each.key or "") for each in held]
    listed = and_more(names, _LISTED)
    what = f"the file has no tensor {clean(name)!r}" if name else "the file holds several tensors"
    hint = f"name one as FILE:NAME; it has {listed}" if len(held) > 1 else f"it has {listed or 'no tensor at all'}"
    raise UnreadableTensorError(what if held else "the file holds no tensor", where=clean(path), hint=hint)


def _parts_of(text: str) -> tuple[str, str]:
    """Splits ``FILE:NAME``; the name is empty where the whole text is a file, or no part before a colon is."""
    path = str(Path(text).expanduser())
    if Path(path).exists():
        return path, ""
    for at in (place for place, letter in enumerate(path) if letter == ":"):
        if Path(path[:at]).is_file():
            return path[:at], path[at + 1 :]
    return path, ""
