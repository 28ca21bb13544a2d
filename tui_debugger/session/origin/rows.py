"""Origins as plain dicts, for JSON and data frames; see ``session.tables`` for the values."""

from __future__ import annotations

from typing import Any

from tui_debugger.model import Hit
from tui_debugger.session.origin.path import Branch, Hop, Path, Way
from tui_debugger.session.origin.search import Fed, Look, Missing, NotJudged, Origin, OriginReport
from tui_debugger.session.origin.words import (
    advice_words,
    explanation,
    first_known_words,
    headline,
    not_judged_words,
    question_words,
    way_words,
)
from tui_debugger.session.tables import frame_row, key_row, meta_row, result_row, stats_row
from tui_debugger.session.types import TensorRow

Row = dict[str, Any]


def report_rows(report: OriginReport) -> Row:
    """What a search found: origins, what each rank began with, how it spread."""
    leading = {look.pair[0] for look in report.leading}
    first = report.shown_look
    return {
        "end": report.end.value,
        "origins": [origin_row(origin) for origin in report.origins],
        "not_judged": [_not_judged_row(each) for each in report.not_judged],
        "first_known": None if report.first_known is None else _first_known_row(report.first_known),
        "first_by_rank": [_first_row(look, look.pair[0] in leading) for look in report.first_looks],
        "spread": {
            "by_graph": first.by_graph if first is not None else None,
            "tensors": [_spread_row(hit) for hit in first.spread] if first is not None else [],
        },
        "bad_tensors": [
            {"rank": look.pair[0], "step": look.pair[1], "tensors": look.bad, "parameters": look.parameters}
            for look in report.looks
        ],
        "not_looked_at": [{"rank": rank, "step": step} for rank, step in report.left],
    }


def origin_row(origin: Origin) -> Row:
    """An origin, or the first bad tensor of a step without one (``starts_here`` is false)."""
    key = origin.hit.key
    return {
        "rank": key.rank,
        "step": key.step,
        "graph": origin.graph,
        "node": origin.node,
        "type": origin.type,
        "starts_here": origin.starts_here,
        "start": origin.start.value,
        "other": origin.other or None,
        "unknown": [_missing_row(each) for each in origin.missing],
        "tensors": [key_row(hit.key) for hit in origin.hits],
        "results": [result_row(result) for result in origin.results],
        "inputs": [_fed_row(fed) for fed in origin.inputs],
        "outputs": [tensor_dict(row) for row in origin.outputs],
        "stack": [frame_row(frame) for frame in origin.stack],
        "stack_of": origin.stack_of or None,
    }


def _not_judged_row(each: NotJudged) -> Row:
    key = each.hit.key
    return {
        "rank": key.rank,
        "step": key.step,
        "graph": each.graph,
        "node": each.node,
        "type": each.type,
        "tensors": [key_row(hit.key) for hit in each.hits],
        "unknown": [_missing_row(missing) for missing in each.missing],
        "other_ranks": each.exchanged,
        "text": not_judged_words(each),
    }


def _missing_row(missing: Missing) -> Row:
    return {"slot": missing.slot, "from": missing.name or None, "why": missing.why}


def _first_known_row(origin: Origin) -> Row:
    return {**origin_row(origin), "text": first_known_words(origin), "to_know_more": advice_words(origin)}


def _first_row(look: Look, leads: bool) -> Row:
    return {
        "rank": look.pair[0],
        "leads": leads,
        "origins": len(look.origins),
        "order": None if look.beginning is None else look.beginning.hit.order[1],
        "first": None if look.beginning is None else origin_row(look.beginning),
        "bad_before": [origin_row(origin) for origin in look.before],
    }


def _fed_row(fed: Fed) -> Row:
    row = tensor_dict(fed.row)
    return {**row, "state": fed.state.value, "constant": fed.constant, "before": fed.before, "by_design": fed.designed}


def tensor_dict(row: TensorRow) -> Row:
    """A line of the tensor table: its place at the node, where its value stands, type, shape, statistics."""
    return {
        "role": row.role,
        "index": row.slot,
        "tensor": key_row(row.key) if row.index >= 0 else None,
        "from": row.origin_text or None,
        **meta_row(row.meta),
        "stats": stats_row(row.stats) if row.stats is not None else None,
        "bad": row.hit,
        "error": row.error or (None if row.index >= 0 else "not dumped"),
        "recorded": row.recorded,
        "uncertain": row.uncertain,
    }


def _spread_row(hit: Hit) -> Row:
    return {
        **key_row(hit.key),
        "results": [result_row(result) for result in hit.results],
        "stats": stats_row(hit.stats) if hit.stats is not None else None,
    }


# -- paths -----------------------------------------------------------------------------------------


def path_rows(path: Path) -> Row:
    """A path upstream: why it ends, and every hop with what went into it."""
    return {
        "question": question_words(path),
        "state": path.state.value,
        "ending": path.ending.value,
        "answer": headline(path),
        "explanation": explanation(path),
        "hops": [_hop_row(hop) for hop in path.hops],
        "not_dumped": list(path.suspects),
        "outside": list(path.outside),
        "clean_end": [tensor_dict(row) for row in path.clean],
        "absent_ranks": list(path.absent),
    }


def _hop_row(hop: Hop) -> Row:
    return {
        **_way_row(hop.way),
        "text": way_words(hop),
        "tensor": tensor_dict(hop.tensor),
        "made": origin_row(hop.told),
        "other_bad_inputs": [_branch_row(branch) for branch in hop.others],
        "other_ranks": [_fed_row(fed) for fed in hop.peers],
    }


def _branch_row(branch: Branch) -> Row:
    return {**_way_row(branch.way), "text": way_words(branch), "tensor": tensor_dict(branch.tensor)}


def _way_row(way: Way) -> Row:
    return {
        "link": way.link.value,
        "into": way.into or None,
        "slots": list(way.slots),
        "through": list(way.hidden),
        "certain": way.certain,
    }
