"""Every view, once: its key, its words, and where its screen is. Screens are loaded when they are first opened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui_debugger.tui.views.view import View


class About(Enum):
    """What must be under the cursor for a view to open."""

    RUN = "run"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class ViewKind:
    """A view.

    Attributes:
        id: also the id of its action.
        key: the same on the main screen and in every other view.
        title, help: for footers, palette, help page and README.
        about: what it shows.
        place: module below ``tui.views`` and name of the class.
    """

    id: str
    key: str
    title: str
    help: str
    about: About
    place: tuple[str, str]

    def load(self) -> type[View]:
        """The screen's class."""
        module, name = self.place
        found: type[View] = getattr(import_module(f"tui_debugger.tui.views.{module}"), name)
        return found


_T = About.TENSOR
VIEWS: tuple[ViewKind, ...] = (
    ViewKind(
        "origin",
        "o",
        "Origin",
        "Walks from this tensor upstream to where the bad values begin, with statistics at every hop.",
        _T,
        ("origin.screen", "OriginView"),
    ),
    ViewKind(
        "explain",
        "E",
        "Explain",
        "What usually causes what was found here, with the numbers of this tensor, and what to look at next.",
        _T,
        ("explain.screen", "ExplainView"),
    ),
    ViewKind(
        "relations",
        "L",
        "Relations",
        "The tensor, what made it and what uses it: walk along the links, back and forward.",
        _T,
        ("relations.screen", "RelationsView"),
    ),
    ViewKind(
        "trend",
        "H",
        "Through the steps",
        "The tensor's statistics over all dumped steps as plots and as a table; several tensors on top of each other.",
        _T,
        ("trend.screen", "TrendView"),
    ),
    ViewKind(
        "compare",
        "C",
        "Compare",
        "Value, value and difference: with another step, rank, tensor or .npy file.",
        _T,
        ("compare.screen", "CompareView"),
    ),
    ViewKind(
        "distribution",
        "b",
        "Distribution",
        "Counts, moments, percentiles, a histogram, and how far the values are from overflow and underflow.",
        _T,
        ("distribution.screen", "DistributionView"),
    ),
    ViewKind(
        "health",
        "M",
        "Health map",
        "Steps across, scopes down, the worst of each in a glyph: when it began and where it spread.",
        About.RUN,
        ("health.screen", "HealthView"),
    ),
)
VIEW_BY_ID: dict[str, ViewKind] = {view.id: view for view in VIEWS}
