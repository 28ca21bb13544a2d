"""Why parameters differ, by the step before of both runs, and the findings on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tui_debugger.check.flow import Located
from tui_debugger.diagnose.runs.distance import INTRODUCED, Distance, error_over_expected
from tui_debugger.diagnose.runs.parameters import ParameterPairs
from tui_debugger.diagnose.runs.results import DiffFinding, DiffKind, OneSided
from tui_debugger.diagnose.runs.step import Asked, Feed, NodePair, Places
from tui_debugger.graph.categories import gradient_of, is_collective
from tui_debugger.model import TRAINABLE, Category, TensorKey


class ParameterCauses(ParameterPairs):
    """The parameters of a step, and those of the steps before.

    Attributes:
        before: the step before of the same rank; None at the first one.
        others: the last judged steps of other ranks.
        causes: by row of the first run, whether recorded differences explain that a parameter differs.
        most: the largest distance so far.
    """

    def __init__(self, asked: Asked, before: ParameterCauses | None) -> None:
        super().__init__(asked, before)
        self.before: ParameterCauses | None = before
        self.others: Sequence[ParameterCauses] = ()
        self.causes: dict[int, bool] = {}
        self.most = 0.0

    def _cause_of_parameter(
        self,
        row: int,
        distance: Distance,
        entry: NodePair | None = None,
        feed: Feed | None = None,
        *,
        left: bool = False,
    ) -> None:
        """Finds out why a parameter differs: it always did, or its update differs.

        ``entry`` and ``feed`` are its first reader. ``left``: the value after the step before was recorded, and may
        agree although the value that is read differs.
        """
        if row in self.causes:
            return
        if row in self.unproven:
            self.causes[row] = True
            return
        other = self.matching.to_b.get(row, -1)
        self.causes[row] = False
        reader = entry.a if entry is not None else -1
        if reader >= 0 and self.before is None:  # what was not recorded as it was read may be read earlier
            reader = min([reader, *self.sides[0].consumers(row)], key=self.sides[0].place.__getitem__)
        consumer = self.names[0][reader] if reader >= 0 else ""
        at = feed.at if feed is not None and None not in feed.at else self._parameter_at(row, other)
        found = DiffFinding(
            DiffKind.PARAMETER,
            self.place,
            float(self.flows[0].nodes.order[reader if reader >= 0 else row]) - 0.5,
            row,
            other,
            self.names[0][row],
            self.names[1][other] if other >= 0 else "",
            (self._key(0, at[0], distance), self._key(1, at[1], distance)),
            distance,
            times=error_over_expected(distance.relative, 0.0, distance.unit),
            consumer=consumer,
        )
        before = self.before
        if before is None:
            text = self.scale_texts.get(row, "")
            text = text or "it differs before the first compared step: another initialisation, checkpoint or input"
            self.findings.append(replace(found, text=self._with_rank(text, distance, at)))
            return
        beside = [judge for each in self.others for judge in (each, each.before) if judge is not None]
        beside = [judge for judge in beside if judge.steps == before.steps and judge is not before]
        explained, text, link = before.explains_parameter(row, distance, beside)
        if explained:
            self.causes[row] = True
            return
        kept = before.dy_of.get(row, math.inf)
        if left and kept <= INTRODUCED * distance.unit < distance.relative:
            text = (
                f"it agrees where step {before.steps[0]} ends, and not where it is read: the program changed it between"
            )
        update = replace(found, kind=DiffKind.UPDATE, text=self._with_rank(text, distance, at))
        self.findings.append(update if link is None else self._missing(before, link, found))

    def _parameter_at(self, row: int, other: int) -> Places:
        found = [next(iter(self.outputs(side, of)), None) if of >= 0 else None for side, of in enumerate((row, other))]
        return found[0], found[1]

    def _with_rank(self, text: str, distance: Distance, at: Places) -> str:
        return f"{text} ({self._joined_text(distance, at)})" if distance.unlike[1] >= 0 else text

    def explains_parameter(
        self, row: int, now: Distance, beside: Sequence[ParameterCauses]
    ) -> tuple[bool, str, OneSided | None]:
        """Tells whether this step explains the distance ``now`` of a parameter at the next step.

        ``beside`` is this step on other ranks, which may share gradients. Else returns a sentence, and the call that
        one run left out, if any.
        """
        if now.relative <= INTRODUCED * (self.dy_of.get(row, 0.0) + now.unit):
            return True, "", None
        gradients = [found for judge in (self, *beside) if (found := judge.gradient_distance(row)) is not None]
        if gradients:
            far = max(gradients)
            if now.relative <= max(INTRODUCED * (far + now.unit), 10 * math.sqrt(far)):
                return True, "", None
            link = self._left_out(row)
            return (
                False,
                f"its gradient at step {self.steps[0]} agrees (distance {far:.2g}): the update is another one",
                link,
            )
        most = max(judge.most for judge in (self, *beside))
        lenient = max(INTRODUCED * (most + now.unit), 10 * math.sqrt(most)) if most else 0.0
        if now.relative <= lenient or any(judge.findings for judge in (self, *beside)):
            return True, "", None
        agrees = f"all that was recorded at step {self.steps[0]} agrees"
        if self.flows[0].nodes.category_of(row) in TRAINABLE | {Category.OPTIMIZER_STATE}:
            return False, f"{agrees}: the update is another one", None
        return False, f"{agrees}: another input, or another update of it", None

    def gradient_distance(self, row: int) -> float | None:
        gradient = self.flows[0].nodes.find(gradient_of(self.names[0][row]))
        return self.dy_of.get(gradient) if gradient >= 0 else None

    def _left_out(self, row: int) -> OneSided | None:
        """The collective operation on the gradient of a parameter that only one run has."""
        nodes = self.flows[0].nodes
        gradient = nodes.find(gradient_of(nodes.names[row]))
        for side, rows in enumerate(self.matching.only):
            own = gradient if side == 0 else self.matching.to_b.get(gradient, -1)
            of = self.flows[side].nodes
            for each in rows:
                if is_collective(of.op_type(each)) and own in self.sides[side].producers(each):
                    return OneSided(side, each, of.names[each], int(of.order[each]))
        return None

    @staticmethod
    def _missing(before: ParameterCauses, link: OneSided, found: DiffFinding) -> DiffFinding:
        text = f"only {'AB'[link.side]} has it, it is missing in {'BA'[link.side]}: "
        return replace(
            found.only_in(link.side, link.row, link.name, before.output_key(link.side, link.row)),
            kind=DiffKind.MISSING,
            place=before.place,
            order=float(link.order),
            consumer=found.name,
            text=f"{text}the parameter {found.name} differs at the next step",
        )

    # -- findings ---

    def _key(self, side: int, at: Located | None, distance: Distance | None) -> TensorKey | None:
        """Returns the tensor of a side; of replicas on several ranks, the one that differs most."""
        if at is None:
            return None
        files = self.files[side]
        if distance is not None and distance.replicas[side] > 0:
            files, at = files.parts(at)[distance.replicas[side]]
        return files.flow.key(at)

    def _finding(
        self,
        kind: DiffKind,
        entry: NodePair,
        at: Places,
        distance: Distance | None,
        *,
        given: float = 0.0,
        times: float = 0.0,
        text: str = "",
    ) -> DiffFinding:
        match = entry.match
        names = self.names[0][match.a], self.names[1][match.b]
        both = self._key(0, at[0], distance), self._key(1, at[1], distance)
        rows = match.a, match.b
        if distance is not None and distance.joined and kind is DiffKind.INTRODUCED:
            text = f"{text or 'its inputs agree and its output does not'} ({self._joined_text(distance, at)})"
        return DiffFinding(kind, self.place, entry.order, *rows, *names, both, distance, given, times, text=text)

    def _joined_text(self, distance: Distance, at: Places) -> str:
        both = all(files.mates for files in self.files)
        text = f"it is of {distance.joined}"
        if not both:
            text = f"in {'AB'[0 if self.files[0].mates else 1]} {text}"
        side, number = distance.unlike
        place = at[side]
        if number < 0 or place is None:
            return text
        rank = self.files[side].parts(place)[number][0].rank
        return f"{text}: rank {rank} of {'AB'[side]} differs most" if both else f"{text}: rank {rank} differs most"
