"""What advice speaks of: the input that is to blame, and the command that shows the same as a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tui_debugger.session.guidance.evidence import Evidence, Given
from tui_debugger.session.guidance.types import Advice
from tui_debugger.session.hazards.cause import Cause
from tui_debugger.text.tensors import place_text


def culprit_of(evidence: Evidence, likely: Sequence[Cause]) -> Given | None:
    """The input that the likely causes speak of, the last one named; else the first one that is no constant."""
    text = " ".join(cause.evidence for cause in likely)
    named = [given for given in evidence.dumped if f"{given.label} " in f"{text} "]
    return named[-1] if named else next((given for given in evidence.dumped if not given.constant), None)


def with_command(evidence: Evidence, advice: Advice) -> Advice:
    """The advice with the command that shows the same as its view; one that has a command of its own keeps it."""
    if advice.arguments or advice.view not in _COMMANDS or evidence.key.step < 0:
        return advice
    key = advice.about or evidence.key
    name, before, after, of_step = _COMMANDS[advice.view]
    place = place_text(key, with_graph=len(evidence.flow.nodes.graphs) > 1)
    where = ["--step", str(key.step)] if of_step else []
    where += ["--rank", str(key.rank)] if len(evidence.session.ranks()) > 1 else []
    return replace(advice, arguments=(name, *before, *([place] if after is not None else []), *(after or ()), *where))


_COMMANDS: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...] | None, bool]]] = {
    "origin": ("origin", ("--from",), (), True),
    "explain": ("explain", (), (), True),
    "relations": ("relations", (), (), True),
    "trend": ("trend", (), (), False),
    "compare": ("diff", (), (), True),
    "distribution": ("show", (), ("--distribution",), True),
    "values": ("show", (), (), True),
    "health": ("health", (), None, False),
}
"""By view: command, what stands before and after the tensor (None: it takes no tensor), whether it is of a step."""
