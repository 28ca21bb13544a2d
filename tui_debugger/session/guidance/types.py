"""The immutable answer: what was found on one tensor, what speaks for which cause, what to look at next."""

from __future__ import annotations

from dataclasses import dataclass

from tui_debugger.model import TensorKey
from tui_debugger.session.hazards.cause import Cause
from tui_debugger.session.types import TensorRow


@dataclass(frozen=True, slots=True)
class Advice:
    """What to look at next.

    Attributes:
        text: one sentence.
        view: id of the view that shows it: ``origin``, ``trend``, ``values`` ...; empty: no view.
        about: the tensor that the view is opened on; None: the tensor that the guidance is about.
        arguments: what a command takes after the path, the command first; empty: no command.
    """

    text: str
    view: str = ""
    about: TensorKey | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Guidance for one condition, or for several that say the same.

    Attributes:
        conditions: ids in the condition table; empty for a tensor without a finding.
        title: a few words.
        found: what was found, with the set and the actual numbers.
        causes: likely ones first, those that are ruled out last.
        advice: what to look at next.
        facts: numbers worth knowing that are no cause.
    """

    conditions: tuple[str, ...]
    title: str
    found: str
    causes: tuple[Cause, ...] = ()
    advice: tuple[Advice, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Guidance:
    """Everything that can be said about one tensor.

    Attributes:
        tensor: the tensor with its type, shape and statistics.
        node_type: operator type of its node.
        sections: one per condition that was found, the origin of NaN and Inf first; without a finding one that says
            what is clean.
        missing: what could not be looked at, and why.
        finding: whether there is a finding.
        graphs: whether the rank has several graphs, so that a name alone may mean two nodes.
    """

    tensor: TensorRow
    node_type: str
    sections: tuple[Section, ...]
    missing: tuple[str, ...] = ()
    finding: bool = False
    graphs: bool = False
