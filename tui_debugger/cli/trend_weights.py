"""``tdbg trend`` without NODE: the weights over the steps of a run, or over its checkpoints."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.cli.options import open_pairs
from tui_debugger.cli.output import Answer, doubt_lines, print_exit, print_first, print_text, unseen
from tui_debugger.text.tables import Column, Cut

if TYPE_CHECKING:
    from tui_debugger.diagnose.trajectory import Trajectory
    from tui_debugger.model import ProgressFn

_EXITS: Final = {0: "done", 2: "cannot judge"}
_BARS: Final = 20
"""Cells for the bars, one per step."""


def weights(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.diagnose.trajectory import SUMMARY, doubts, trajectory

    session, pairs = open_pairs(arguments, progress)
    found = trajectory(session, pairs, progress)
    places = [place for place in range(len(found.weights)) if not arguments.remarks or found.remarks_of(place)]
    return Answer(
        code=found.exit_code,
        missing=unseen(session, pairs),
        reasons=[{"kind": "unreadable", "text": text} for text in doubts(found)],
        notices=session.info.notices,
        document=lambda: _document(found, places),
        csv=lambda: (SUMMARY, _csv_rows(found, places)),
        show=lambda code: _print(found, places, arguments.top, code),
    )


_COLUMNS: Final = (
    Column("weight", cut=Cut.MIDDLE, weight=10),
    Column("shape", weight=1),
    Column("first norm", right=True, weight=4),
    Column("last norm", right=True, weight=6),
    Column("growth", right=True, weight=8),
    Column("update", right=True, weight=9),
    Column("last update", right=True, weight=3),
    Column("cosine", right=True, weight=2),
    Column("eff. rank", weight=5),
    Column("steps", weight=7),
    Column("remarks", cut=Cut.FOLD, weight=7),
)


def _print(found: Trajectory, places: list[int], top: int, code: int) -> None:
    from tui_debugger.diagnose.trajectory import LEGEND, cells, coverage_text, doubts, headline

    answer, covered = headline(found), coverage_text(found)
    if places:
        print_first(_COLUMNS, places, lambda place: cells(found, place, _BARS), top)
        print_text(LEGEND, "")
    print_text(*doubt_lines(doubts(found)))
    print_text(covered, answer)
    print_exit(code, _EXITS[code])


def _csv_rows(found: Trajectory, places: list[int]) -> Iterator[Iterable[object]]:
    from tui_debugger.diagnose.trajectory import summary
    from tui_debugger.text.tensors import shape_text

    for place in places:
        row = summary(found, place)
        row["shape"] = shape_text(row["shape"]) if row["shape"] is not None else None
        row["effective_rank_of"] = (
            shape_text(row["effective_rank_of"]) if row["effective_rank_of"] is not None else None
        )
        row["remarks"] = "; ".join(row["remarks"])
        yield row.values()


def _document(found: Trajectory, places: list[int]) -> dict[str, Any]:
    from tui_debugger import __version__
    from tui_debugger.diagnose.trajectory import coverage_text, headline, row

    return {
        "headline": headline(found),
        "weights": [row(found, place) for place in places],
        "remarks": [
            {
                "kind": each.about.value,
                "rank": found.weights[each.weight].key.rank,
                "node": found.weights[each.weight].key.node,
                "text": each.text,
            }
            for each in found.remarks
        ],
        "coverage": {
            "text": coverage_text(found),
            "steps": found.steps,
            "ranks": sorted({rank for rank, _ in found.pairs}),
            "weights": len(found.weights),
            "with_values": sum(each.with_values > 1 for each in found.weights),
            "not_dumped": [{"rank": rank, "node": name} for rank, name in found.absent],
        },
        "version": __version__,
    }
