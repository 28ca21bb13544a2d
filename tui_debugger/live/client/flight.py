"""The flight recorder: keeps the last steps, and writes them when something goes wrong while nobody watches.

A dump directory for ``tdbg open`` is written: the graph, statistics of every tensor of the last steps, values of the
last few steps when asked for, and always the values of the first bad tensors and their inputs, where these still exist.
Memory, disk and the number of dumps are bounded.

A NaN or Inf is an event. It is written at the end of its step, whatever was written before. Tensors that go bad because
of another bad tensor, in the same step or later, belong to the same event and cause no dump of their own. Other hits
wait: after a dump, the next one for them is written when as many steps have passed as are kept, or at the end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.errors import TdbgError
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.search import select
from tui_debugger.live.client.agent import of_the_training
from tui_debugger.live.client.judging import ClientJudge, ConsecutiveSteps, StepMemory
from tui_debugger.live.client.messages import GRADIENTS, GraphBuilder
from tui_debugger.live.client.probe import ClientHit, Identity
from tui_debugger.live.client.unpacking import in_words
from tui_debugger.live.dump_writer import PARAMETER, DumpWriter, TensorName
from tui_debugger.live.wire import START, Unrecorded
from tui_debugger.model import PARAMETERS, TRAINABLE, TensorMeta, TensorStats, Verdict, Watchpoint
from tui_debugger.notes import Notes
from tui_debugger.text.numbers import and_more, plural
from tui_debugger.watch.condition_table import by_abbr, not_finite_words
from tui_debugger.watch.recommended import recommended
from tui_debugger.watch.text import parse_watch

LINE: Final = 250
"""Bytes of a line of statistic.csv, about."""
_PART: Final = ".part"
Line = tuple[TensorName, TensorMeta | None, TensorStats]
REASON: Final = "why.txt"
"""A file at the top of the dump: why it was written."""


@dataclass(frozen=True, slots=True)
class WrittenDump:
    """A dump that was written: its directory, its bytes, and the number of its steps."""

    path: Path
    nbytes: int
    steps: int


def _fitting(ring: Iterable[RecordedStep], room: int) -> tuple[Sequence[RecordedStep], int]:
    """The newest steps whose statistics fit, at least one step; and the room that is left for values."""
    kept = list(ring)
    start = len(kept)
    while start and (start == len(kept) or room >= LINE * len(kept[start - 1].rows)):
        start -= 1
        room -= LINE * len(kept[start].rows)
    return kept[start:], room


def _read(
    kept: RecordedStep, before: RecordedStep, weights_read: Iterable[tuple[str, int, str]], types: dict[str, str]
) -> list[Line]:
    """The weights of the step before, as inputs of the nodes that ran."""
    ran = {row.name for row in kept.rows}
    weights = {row.name: row for row in before.rows}
    return [
        (TensorName(types.get(node, "Tensor"), node, number, side="input"), row.meta, row.stats)
        for node, number, name in weights_read
        if node in ran and (row := weights.get(name)) is not None and row.stats is not None
    ]


def _begin(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        each = name if number == 1 else f"{name}-{number}"
        if not (directory / each).exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                part = directory / f"{each}{_PART}"
                part.mkdir()
                return part
    raise AssertionError


def _finish(part: Path) -> Path:
    """Gives a finished dump its name, with a number if another process took the name meanwhile."""
    name = part.with_name(part.name.removesuffix(_PART))
    for number in count(1):
        path = name if number == 1 else name.with_name(f"{name.name}.{number}")
        try:
            part.rename(path)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
        else:
            return path
    raise AssertionError


def _write_step(
    writer: DumpWriter, kept: RecordedStep, types: dict[str, str], room: int, read: Sequence[Line] = ()
) -> tuple[int, list[str]]:
    """Writes one step; returns the bytes of its values, and the first bad tensors whose values did not fit."""
    names = [TensorName(types.get(row.name, "Tensor"), row.name, row.slot) for row in kept.rows]
    used, without = 0, []
    for number, place in enumerate(kept.by_importance()):
        name, row = names[place], kept.rows[place]
        if row.values is None:
            continue
        if used + row.values.nbytes > room:
            without += [row.name] if number < len(kept.first) else []
            continue
        with contextlib.suppress(ValueError):  # files cannot hold this element type; its statistics are written
            writer.array(kept.step, name, row.values)
            used += row.values.nbytes
    pairs = zip(names, kept.rows, strict=True)
    lines = [(name, row.meta, row.stats) for name, row in pairs if row.stats is not None]
    writer.statistics(kept.step, [*read, *lines])
    return used, without


def _types(graphs: Sequence[bytes]) -> dict[str, str]:
    types: dict[str, str] = {}
    for graph in map(parse_graph, graphs):
        types.update((node.full_name, node.op_type) for node in graph.nodes)
        types.update((parameter.name, PARAMETER) for parameter in graph.parameters)
    return types


ROW_BYTES: Final = 600
"""The bytes that one tensor's statistics take in memory, about."""
_FOUND: Final = (Verdict.FINDING, Verdict.BLOCKED)
"""The verdicts that make a tensor a finding."""
REMEMBERED: Final = 100_000
"""Hits that are not reported a second time."""
EVIDENCE: Final = 8 << 20
"""Bytes of values of bad tensors and their inputs that are written even when no values are kept."""
_EXAMINED: Final = 100
"""The first bad tensors of a step whose values are looked for."""
_NAMED: Final = 10
OVERFLOW: Final = frozenset({"tensor_overflow", "operator_overflow"})
RECOMMENDED: Final = "recommended"

Key = tuple[str, int]
"""Node name and slot."""
Values = Callable[[str, int], Array | None]
"""Returns the values of a tensor of the step that is judged, a copy that is never changed; None when they are gone."""


@dataclass(frozen=True, slots=True)
class Flight:
    """The settings of a flight recorder: the steps that it keeps, and where it writes.

    Attributes:
        directory: every dump becomes a directory in here.
        steps: steps whose statistics are kept.
        tensor_steps: steps whose values are kept as well; 0: none, except a few MB of the first bad tensors.
        watch: what is watched besides NaN and Inf: texts such as ``"TL abs_mean_gt=10 @ category=weight"``, and
            ``"recommended"`` for the recommended watchpoints. NaN and Inf are looked for in every tensor, unless one of
            the texts says where (``"TO @ category=weight"``).
        memory: bytes that are kept at most; older steps go first.
        disk: bytes of all dumps together at most: values that do not fit are left out, then no more is written.
        dumps: dumps of this process at most. One of them is reserved for the first NaN or Inf; hits of other
            watchpoints and exceptions that may have been caught do not use it.
    """

    directory: str
    steps: int = 20
    tensor_steps: int = 0
    watch: Sequence[str] | None = None
    memory: int = 256 << 20
    disk: int = 1 << 30
    dumps: int = 4

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.tensor_steps <= self.steps:
            raise TdbgError(
                f"a flight recorder cannot keep {self.steps} steps and values of {self.tensor_steps}",
                hint="steps must be 1 or more, tensor_steps between 0 and steps",
            )
        if isinstance(self.watch, str):
            raise TdbgError("watch is a list of texts, not one text", where=self.watch, hint=f"watch=[{self.watch!r}]")


@dataclass(frozen=True, slots=True)
class FlightRow:
    """One output tensor of one step."""

    name: str
    meta: TensorMeta
    stats: TensorStats | None  # None when its elements are no numbers
    values: Array | None = None  # a copy that is never changed
    slot: int = 0


@dataclass(slots=True)
class RecordedStep:
    """One step in the ring."""

    step: int
    rows: list[FlightRow]
    nbytes: int
    partial: bool = False  # the step did not come to its end (or has not yet)
    first: Sequence[int] = ()  # places in ``rows`` of the first bad tensors and their inputs
    notes: Notes = field(default_factory=dict)
    left_out: int = 0  # tensors for which there was no memory

    def by_importance(self) -> Iterator[int]:
        """Places in ``rows``: the first bad tensors and their inputs, then the others."""
        yield from self.first
        important = set(self.first)
        yield from (place for place in range(len(self.rows)) if place not in important)


class FlightRecorder:
    """The ring, the watchpoints and the decision when to write, for any framework.

    ``keep`` takes a step, ``judged`` the results of the watchpoints on it. Methods that may write return a sentence for
    users, which is empty when nothing was written. They do not raise when a dump cannot be written: it is tried again
    with the next finding, after half as many steps as are kept, and at the end. Lost dumps are counted in the next dump
    and at the end. ``judge`` has the watchpoints on the nodes of the known graph: it tells what to measure.
    """

    def __init__(
        self,
        flight: Flight,
        identity: Identity,
        unrecorded: Callable[[], Sequence[Unrecorded]] = tuple,
        patience: ConsecutiveSteps | None = None,
        memory: StepMemory | None = None,
    ) -> None:
        """Keeps nothing yet. BadWatchpointError: a watch text is wrong.

        A dump names what ``unrecorded`` returns. The caller must tell ``patience`` and ``memory``, which the judge
        uses, when a step is over.
        """
        # Imported before they are needed: an import while the interpreter ends changes the exit status after Ctrl+C.
        from tui_debugger.graph.messages import message_class

        message_class("GraphProto")
        GraphBuilder()
        self.flight = flight
        self.judge = ClientJudge()
        self._directory = Path(flight.directory)
        with contextlib.suppress(OSError):  # the program may change its directory before anything is written
            self._directory = self._directory.absolute()
        self._identity = identity
        self._unrecorded = unrecorded
        self._patience, self._memory = patience, memory
        self._graphs: Sequence[bytes] = ()
        self._table = build_table(())
        given = [text for text in flight.watch or () if text.strip() != RECOMMENDED]
        self._watch = [parse_watch(text) for text in given]
        self._recommended = len(given) < len(flight.watch or ())
        if not any(condition in OVERFLOW for condition, _, _ in self._watch):
            self._watch.insert(0, parse_watch("TO"))
        self._ring: deque[RecordedStep] = deque()
        self._nbytes = 0
        self._left: RecordedStep | None = None
        """The step before the oldest one in the ring: the first nodes read its weights."""
        self._events = _Events(self._inputs, self._outlives)
        self._seen: set[tuple[int, str, int]] = set()
        self._quiet_until = -1
        self._pending = ""
        self._overflowed = False
        self._dumps = 0
        self._disk = 0
        self._unwritten: dict[str, tuple[int, str]] = {}
        """The reasons of dumps that could not be written: their last steps, and why."""
        self._missed: Unrecorded | None = None
        """The steps that could not be recorded, with the reason of the first one."""
        self._process = os.getpid()
        """A process that was forked from this one has the same ring, and writes nothing."""
        self._newest: tuple[Path, int] | None = None
        """The last dump, and its last step."""

    @property
    def knows_graph(self) -> bool:
        return bool(self._graphs)

    @property
    def steps(self) -> Sequence[int]:
        return [kept.step for kept in self._ring]

    def know(self, graphs: Sequence[bytes]) -> ClientJudge:
        """Takes a new graph; returns ``judge`` for its nodes."""
        self._graphs = tuple(graphs)
        self._table = table = build_table([parse_graph(graph) for graph in self._graphs])
        types = [table.op_type(row) for row in range(len(table))]
        watchpoints = [Watchpoint(0, *each) for each in self._watch]
        if self._recommended:  # those that work on the device
            watchpoints += recommended(table.category, types, device=self._identity.backend)
        self.judge = ClientJudge()
        self.judge.patience, self.judge.memory = self._patience, self._memory
        for number, each in enumerate(watchpoints, 1):
            watchpoint = replace(each, id=number)
            for row in np.flatnonzero(select(table, watchpoint.selection)).tolist():
                self.judge.add(watchpoint, table.names[row])
        for name, kind, category in zip(table.names, types, table.category.tolist(), strict=True):
            self.judge.know(name, kind, category)
        return self.judge

    # -- a step --------------------------------------------------------------------------------------

    def begin(self, weights: Sequence[FlightRow]) -> None:
        self._left = RecordedStep(START, list(weights), 0)

    def keep(self, step: int, rows: Sequence[FlightRow], *, partial: bool = False, notes: Notes | None = None) -> None:
        """Takes a step into the ring, in place of an earlier version of it.

        ``rows`` are in the order of execution, parameters last. ``partial``: the step did not come to its end.
        """
        if self._ring and self._ring[-1].step == step:
            self._nbytes -= self._ring.pop().nbytes
        for older in self._older():
            self._nbytes -= _strip(older)
        kept = RecordedStep(step, list(rows), sum(ROW_BYTES + _values_bytes(row) for row in rows), partial)
        kept.notes = dict(notes or {})
        kept.first = tuple(self._important(kept.rows))
        self._ring.append(kept)
        self._nbytes += kept.nbytes
        while len(self._ring) > self.flight.steps or (self._nbytes > self.flight.memory and len(self._ring) > 1):
            self._left = self._ring.popleft()
            self._nbytes -= self._left.nbytes
            _strip(self._left)
        if self._nbytes > self.flight.memory:  # the newest step alone is too much
            self._nbytes = _squeeze(kept, self.flight.memory)

    def judged(self, step: int, hits: Sequence[ClientHit], values: Values | None = None) -> str:
        """Takes the hits on the step kept last, in execution order, and writes if they are an event that needs a dump.

        Another call for the same step adds hits. ``values`` returns values of bad tensors that are not in the ring.
        """
        bad = [hit for hit in hits if _is_overflow(hit)]
        softer = self._fresh([hit for hit in hits if hit.result.verdict is Verdict.FINDING and not _is_overflow(hit)])
        partial = bool(self._ring) and self._ring[-1].partial
        if softer and not self._pending and not partial:  # an unfinished step has not updated its weights yet
            self._pending = _reason(softer, step)
        origins = self._events.of_step(step, bad)
        if origins:
            return self._write_event(step, bad, origins[0], values)
        return self._write_pending() if self._pending and step >= self._quiet_until else ""

    def flush(self, *, ends: bool = True) -> str:
        """Writes what waits to be written. ``ends``: the training is over."""
        written = self._write_pending(whole=ends) if self._pending else ""
        if not ends:
            return written
        return "; ".join(filter(None, ("" if self._pending else written, *self._losses())))

    def missed(self, step: int, error: Exception) -> str:
        """A step could not be recorded: no memory, a broken array ... The next one may be."""
        known = self._missed or Unrecorded(in_words(error), 0, step=step)
        self._missed = replace(known, count=known.count + 1)
        return f"the flight recorder could not take a step in ({in_words(error)}); it goes on with the next one"

    def failed(self, error: BaseException, *, ends: bool = True) -> str:
        """Writes the kept steps because of an exception; ``ends``: it ends the training, else it may be caught."""
        if not self._ring:
            return ""
        last = self._ring[-1]
        text = f"{in_words(error)} {'in' if last.partial else 'after'} step {last.step}"
        if self._newest is not None and self._newest[1] == last.step and _add_reason(self._newest[0], text):
            return ""  # the newest dump has everything
        if not self._may_write(whole=ends):
            self._pending = self._pending or text
            return ""
        return self._write(text)

    # -- what is kept --------------------------------------------------------------------------------

    def _older(self) -> Sequence[RecordedStep]:
        return list(self._ring)[: max(len(self._ring) - max(self.flight.tensor_steps - 1, 0), 0)]

    def _inputs(self, name: str) -> Sequence[Key]:
        table = self._table
        row = table.find(name)
        return [(table.names[node], slot) for node, slot in (table.inputs(row) if row >= 0 else ()) if node >= 0]

    def _weights_read(self) -> Iterator[tuple[str, int, str]]:
        table = self._table
        for row in range(len(table)):
            for number, (node, _) in enumerate(table.inputs(row)):
                if node >= 0 and table.category_of(node) in TRAINABLE:
                    yield table.names[row], number, table.names[node]

    def _outlives(self, name: str) -> bool:
        row = self._table.find(name)
        return row >= 0 and self._table.category_of(row) in PARAMETERS

    def _important(self, rows: Sequence[FlightRow]) -> Iterator[int]:
        """Places of bad tensors in order, each followed by its inputs."""
        bad = [place for place, row in enumerate(rows) if row.stats is not None and row.stats.bad][:_EXAMINED]
        if not bad:
            return
        places = {(row.name, row.slot): place for place, row in enumerate(rows)}
        reported: set[int] = set()
        for place in bad:
            sources = [places[key] for key in self._inputs(rows[place].name) if key in places]
            for each in (place, *sources):
                if each not in reported:
                    reported.add(each)
                    yield each

    def _add_evidence(self, kept: RecordedStep, values: Values) -> None:
        """Takes the values of the first bad tensors, and of their inputs, into the ring."""
        left = EVIDENCE
        for place in kept.first:
            row = kept.rows[place]
            if row.values is None and row.meta.nbytes <= left and (found := values(row.name, row.slot)) is not None:
                left -= found.nbytes
                kept.rows[place] = replace(row, values=found)
                kept.nbytes += found.nbytes
                self._nbytes += found.nbytes

    # -- when to write -------------------------------------------------------------------------------

    def _fresh(self, hits: Sequence[ClientHit]) -> Sequence[ClientHit]:
        fresh = [hit for hit in hits if _hit_key(hit) not in self._seen]
        if len(self._seen) < REMEMBERED:
            self._seen.update(map(_hit_key, fresh))
        return fresh

    def _may_write(self, *, whole: bool) -> bool:
        """Tells whether another dump is allowed; without ``whole``, one stays reserved for the first NaN or Inf."""
        most = self.flight.dumps if whole or self._overflowed else self.flight.dumps - 1
        return self._dumps < most and bool(self._ring) and os.getpid() == self._process

    def _write_event(self, step: int, bad: Sequence[ClientHit], first: ClientHit, found: Values | None) -> str:
        reason = _reason([first, *(hit for hit in bad if hit is not first)], step)
        if not self._may_write(whole=True):
            if os.getpid() != self._process:
                return f"{reason}: not written, because this process was forked from the one that has a flight recorder"
            enough = self._dumps >= self.flight.dumps
            return f"{reason}: not written, because {self._dumps} dumps were written already" if enough else ""
        self._overflowed = True
        kept = self._ring[-1]
        if found is not None and kept.step == step:
            self._add_evidence(kept, found)
        waiting, self._pending = self._pending, ""
        return self._write("\n".join(filter(None, (reason, waiting))))

    def _write_pending(self, *, whole: bool = False) -> str:
        if not self._may_write(whole=whole):
            return ""
        reason, self._pending = self._pending, ""
        self._quiet_until = self._ring[-1].step + self.flight.steps
        return self._write(reason)

    def _write(self, reason: str) -> str:
        room = self.flight.disk - self._disk
        if not self._overflowed:
            room -= self.flight.disk // max(self.flight.dumps, 2)
        lines = reason.splitlines()
        if room <= 0:
            return f"{lines[0]}: not written, because dumps have taken {self._disk:,} bytes already"
        last, oldest = self._ring[-1].step, self._ring[0].step
        steps = list(self._ring)
        if self._left is not None and self._left.step == oldest - 1:
            steps.insert(0, self._left)
        late = [each for each, (step, _) in self._unwritten.items() if step >= oldest and each not in lines]
        try:
            written = self._write_dump(steps, room, "\n".join((*lines, *late, *self._remarks(oldest))))
        except Exception as error:
            if of_the_training(error):
                raise
            return self._not_written(lines, in_words(error))
        self._dumps += 1
        self._disk += written.nbytes
        self._newest = written.path, last
        self._unwritten = {each: lost for each, lost in self._unwritten.items() if lost[0] < oldest}
        return f"{lines[0]}: {self._contents(written)}"

    def _write_dump(self, steps: Sequence[RecordedStep], room: int, reason: str) -> WrittenDump:
        """Writes one dump; its directory gets its name only when everything is there. OSError: nothing is left behind.

        Of the step before those in the ring the weights are written, as inputs of the nodes that read them: else nobody
        could tell whether these nodes got bad inputs. Half of the free space of the disk, and what exceeds ``room``, is
        left alone: the newest steps come first, statistics, then values.
        """
        who = self._identity
        part = _begin(self._directory, f"flight-rank{who.rank}-step{steps[-1].step}-{os.getpid()}")
        try:
            kept, room = _fitting(self._ring, min(room, shutil.disk_usage(part).free // 2 or room))
            before = steps[-len(kept) - 1] if len(steps) > len(kept) else None
            writer = DumpWriter(part, rank=who.rank, net="flight", program=who.program, device=who.backend)
            writer.metadata()
            writer.graphs(self._graphs)
            writer.history(each.step for each in kept)
            writer.notes((each.step, each.notes) for each in steps)
            types = _types(self._graphs)
            lost: list[str] = []
            for each in reversed(kept):
                read = (
                    _read(each, before, self._weights_read(), types) if each is kept[0] and before is not None else ()
                )
                used, without = _write_step(writer, each, types, room, read)
                room -= used
                lost += [name for name in without if name not in lost]
            if lost:
                reason += f"\nstatistics only, there was no room on the disk for the values: {and_more(lost, _NAMED)}"
            (part / REASON).write_text(reason + "\n", encoding="utf-8", errors="backslashreplace")
            nbytes = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
            return WrittenDump(_finish(part), nbytes, len(kept))
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def _contents(self, written: WrittenDump) -> str:
        """``the last 2 steps are in DIR, without 3 older ones (disk=1,000)``."""
        steps = "step is" if written.steps == 1 else f"{written.steps} steps are"
        older, last = len(self._ring) - written.steps, self._ring[-1]
        lacks = [f"{plural(older, 'older step')} (disk={self.flight.disk:,})"] if older else []
        lacks += [f"{_left_out_words(last)} (memory={self.flight.memory:,})"] if last.left_out else []
        return f"the last {steps} in {written.path}{', without ' if lacks else ''}{' and '.join(lacks)}"

    def _not_written(self, lines: Sequence[str], why: str) -> str:
        """Notes a failed dump, which is tried again while its steps are still there."""
        last = self._ring[-1].step
        if len(self._unwritten) < REMEMBERED:
            self._unwritten.setdefault(lines[0], (last, why))
        self._pending = self._pending or "\n".join(lines)
        self._quiet_until = last + max(self.flight.steps // 2, 1)
        return f"{lines[0]}: not written ({why}); the flight recorder tries again"

    def _losses(self, oldest: int | None = None) -> Iterator[str]:
        """Sentences on dumps that could not be written before step ``oldest``, and on steps that were not recorded."""
        lost = [(each, why) for each, (step, why) in self._unwritten.items() if oldest is None or step < oldest]
        if lost:
            reason, why = lost[0]
            dumps = plural(len(lost), "dump")
            yield f"{dumps} of the flight recorder could not be written, the first one: {reason} ({why})"
        missed = self._missed
        if missed is not None:
            steps = plural(missed.count, "step")
            yield f"{steps} could not be taken in, the first one was step {missed.step} ({missed.what})"

    def _remarks(self, oldest: int) -> Iterator[str]:
        """Remarks for the readers of a dump whose first step is ``oldest``."""
        last = self._ring[-1]
        if last.partial:
            yield f"step {last.step} did not come to its end: its tensors were seen before that"
        if last.left_out:
            yield f"there was no memory for {_left_out_words(last)}"
        lost = [last.rows[place].name for place in last.first if last.rows[place].values is None]
        if lost:
            names = and_more(lost, _NAMED)
            yield f"statistics only, the values were changed in place, not held any more or too large: {names}"
        for each in self._unrecorded():
            example = f", the first one {each.example} in step {each.step}" if each.example else ""
            yield f"not recorded: {each.count} {each.what}{example}"
        yield from self._losses(oldest)


def _add_reason(path: Path, text: str) -> bool:
    try:
        with (path / REASON).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text + "\n")
    except OSError:
        return False
    return True


class _Events:
    """Tells a NaN or Inf that begins at a tensor from one that follows from another tensor."""

    def __init__(self, inputs: Callable[[str], Sequence[Key]], outlives: Callable[[str], bool]) -> None:
        """``inputs`` returns the inputs of a node; ``outlives`` tells whether a node keeps values for the next step."""
        self._inputs = inputs
        self._outlives = outlives
        self._step = -1
        self._before: set[Key] = set()
        """The tensors that were bad in the step before."""
        self._now: set[Key] = set()
        self._spread = self._spreads = False
        """Whether something was bad for the first time: in the step before, and (``_spreads``) in this step."""

    def of_step(self, step: int, bad: Iterable[ClientHit]) -> Sequence[ClientHit]:
        """The hits of a step that follow from no other hit, in order; a further call for the step adds hits.

        ``bad`` are its hits of NaN or Inf, in the order of execution, parameters last.
        """
        if step != self._step:
            follows = step == self._step + 1
            self._before, self._now = (self._now if follows else set()), set()
            self._spread, self._spreads = follows and self._spreads, False
            self._step = step
        found: list[ClientHit] = []
        for hit in bad:
            key = hit.node, hit.slot
            if key in self._now:
                continue
            self._now.add(key)
            if key not in self._before:
                if not self._follows(hit.node):
                    found.append(hit)
                self._spreads = True
        return found

    def _follows(self, name: str) -> bool:
        """Tells whether a tensor that is bad for the first time is so because of other bad tensors."""
        if (GRADIENTS + name, 0) in self._now:
            return True
        sources = [key for key in self._inputs(name) if key[0] != name]
        if any(key in self._now or (key in self._before and self._outlives(key[0])) for key in sources):
            return True
        if name.startswith(GRADIENTS) or not sources:  # parameters, and nodes without known inputs
            return self._spreads or self._spread
        return self._spread and any(self._outlives(node) for node, _ in self._before)


def _is_overflow(hit: ClientHit) -> bool:
    """NaN or Inf that blocks a condition is no hit of that condition, but counts here all the same."""
    result = hit.result
    return result.verdict is Verdict.BLOCKED or (result.verdict is Verdict.FINDING and result.condition in OVERFLOW)


def _reason(hits: Sequence[ClientHit], step: int) -> str:
    """``TO hit on h and 3 more at step 4``."""
    first, others = hits[0], {(hit.node, hit.slot) for hit in hits} - {(hits[0].node, hits[0].slot)}
    more = f" and {len(others)} more" if others else ""
    return f"{_what(first)} {first.node}{more} at step {step}"


def _what(hit: ClientHit) -> str:
    if hit.result.verdict is Verdict.BLOCKED:
        return f"{not_finite_words(hit.result.error)} in"
    return f"{by_abbr(hit.result.condition).abbr} hit on"


def _hit_key(hit: ClientHit) -> tuple[int, str, int]:
    return hit.result.watchpoint, hit.node, hit.slot


def _values_bytes(row: FlightRow) -> int:
    return 0 if row.values is None else row.values.nbytes


def _strip(kept: RecordedStep) -> int:
    freed = kept.nbytes - ROW_BYTES * len(kept.rows)
    if freed:
        kept.rows = [replace(row, values=None) if row.values is not None else row for row in kept.rows]
        kept.nbytes -= freed
    return freed


def _left_out_words(kept: RecordedStep) -> str:
    return f"{plural(kept.left_out, 'tensor')} of step {kept.step}"


def _squeeze(kept: RecordedStep, most: int) -> int:
    """Drops what does not fit, the least important first: values, then rows except one; returns the bytes left."""
    places = sorted(list(kept.by_importance())[: max(most // ROW_BYTES, 1)])
    kept.left_out = len(kept.rows) - len(places)
    new = {place: number for number, place in enumerate(places)}
    kept.first = tuple(new[place] for place in kept.first if place in new)
    kept.rows = [kept.rows[place] for place in places]
    kept.nbytes = ROW_BYTES * len(kept.rows)
    for place in kept.by_importance():
        nbytes = _values_bytes(kept.rows[place])
        if kept.nbytes + nbytes > most:
            kept.rows[place] = replace(kept.rows[place], values=None)
        else:
            kept.nbytes += nbytes
    return kept.nbytes
