"""Guidance as plain dicts, for JSON."""

from __future__ import annotations

from typing import Any

from tui_debugger.session.guidance.types import Advice, Guidance, Section
from tui_debugger.session.tables import key_row, meta_row, stats_row
from tui_debugger.watch.condition_table import CONDITIONS

Row = dict[str, Any]


def guidance_row(guidance: Guidance) -> Row:
    """Everything that is said about one tensor."""
    row = guidance.tensor
    return {
        **key_row(row.key),
        "type": guidance.node_type,
        **meta_row(row.meta),
        "stats": stats_row(row.stats) if row.stats is not None else None,
        "error": row.error or None,
        "finding": guidance.finding,
        "sections": [_section(section) for section in guidance.sections],
        "not_known": list(guidance.missing),
    }


def _section(section: Section) -> Row:
    return {
        "conditions": list(section.conditions),
        "abbr": [CONDITIONS[condition].abbr for condition in section.conditions],
        "title": section.title,
        "found": section.found,
        "causes": [
            {"title": cause.title, "evidence": cause.evidence, "standing": cause.standing.name.lower()}
            for cause in section.causes
        ],
        "look_next": [_advice(advice) for advice in section.advice],
        "facts": list(section.facts),
    }


def _advice(advice: Advice) -> Row:
    return {
        "text": advice.text,
        "view": advice.view or None,
        "tensor": key_row(advice.about) if advice.about is not None else None,
        "arguments": list(advice.arguments),
    }
