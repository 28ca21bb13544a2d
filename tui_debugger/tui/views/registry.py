"""The registry of all views: keys, words and classes (loaded when first opened), and the target of a view."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tui_debugger.config import in_use

if TYPE_CHECKING:
    from tui_debugger.diagnose.compare import ComparedTensor
    from tui_debugger.model import Hit, TensorKey


class ViewSubject(Enum):
    """The thing that must be under the cursor for a view to open."""

    RUN = "run"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class ViewKind:
    """A view, before its class is loaded.

    Attributes:
        id: also the id of its action.
        usual_key: opens it on the main screen and in every other view, unless the user chose another key.
        help: for help page, palette and manual.
    """

    id: str
    usual_key: str
    title: str
    help: str
    about: ViewSubject

    @property
    def key(self) -> str:
        return in_use().keys.get(self.id, (self.usual_key,))[0]

    def load(self) -> Any:
        """Imports the view's class: ``OriginView`` in ``tui.views.origin``."""
        return getattr(import_module(f"tui_debugger.tui.views.{self.id}"), f"{self.id.capitalize()}View")


_T = ViewSubject.TENSOR
VIEWS: tuple[ViewKind, ...] = (
    ViewKind(
        "origin",
        "o",
        "Origin",
        "Walks from this tensor upstream to where the bad values begin, with statistics at every hop.",
        _T,
    ),
    ViewKind(
        "explain",
        "E",
        "Explain",
        "What usually causes what was found here, with the numbers of this tensor, and what to look at next.",
        _T,
    ),
    ViewKind(
        "relations",
        "L",
        "Relations",
        "What made the tensor and what uses it, as lists or as a graph; of a scope the graph of scopes around it.",
        _T,
    ),
    ViewKind(
        "trend",
        "H",
        "Through the steps",
        "The tensor's statistics over all dumped steps as plots and as a table; several tensors on top of each other.",
        _T,
    ),
    ViewKind(
        "trajectory",
        "J",
        "Weights over the steps",
        "How far every weight moves at each step: which never do, which grow, lose rank, or are unlike their kind.",
        ViewSubject.RUN,
    ),
    ViewKind(
        "compare",
        "C",
        "Compare",
        "Value, value and difference: with another step, rank, tensor or .npy file.",
        _T,
    ),
    ViewKind(
        "distribution",
        "b",
        "Distribution",
        "Counts, moments, percentiles, a histogram, and how far the values are from overflow and underflow.",
        _T,
    ),
    ViewKind(
        "health",
        "M",
        "Health map",
        "Steps across, scopes down, the worst of each in a glyph: when it began and where it spread.",
        ViewSubject.RUN,
    ),
    ViewKind(
        "runs",
        "D",
        "Two runs",
        "Compares this run with another one: where the first real difference begins, and where it goes.",
        ViewSubject.RUN,
    ),
    ViewKind(
        "ranks",
        "K",
        "Ranks",
        "Ranks across, scopes down: a statistic or a verdict of one step, which rank broke first, which differ.",
        ViewSubject.RUN,
    ),
    ViewKind(
        "audit",
        "Q",
        "Audit",
        "Computes every known operator again from its recorded inputs: which output is wrong, and how far off.",
        ViewSubject.RUN,
    ),
)
VIEW_BY_ID: dict[str, ViewKind] = {view.id: view for view in VIEWS}


@dataclass(frozen=True, slots=True)
class ViewTarget:
    """The tensor that a view is opened on.

    Attributes:
        row: the node's row in the node table of the tensor's rank; -1 for none.
        hit: the tensor's hit, if it has one.
        at: full index of the element to show first; None for no particular element.
        against: the tensor to compare with first; None: the previous step.
        scope: the path of the scope that was under the cursor; the tensor is one in it.
    """

    key: TensorKey
    row: int
    hit: Hit | None = None
    at: tuple[int, ...] | None = None
    against: ComparedTensor | None = None
    scope: str = ""

    @classmethod
    def of_hit(cls, hit: Hit) -> ViewTarget:
        return cls(hit.key, hit.row, hit)

    def at_step(self, step: int) -> ViewTarget:
        """Returns the same tensor at another step, without its hit."""
        return self if step == self.key.step else ViewTarget(self.key.at_step(step), self.row, at=self.at)
