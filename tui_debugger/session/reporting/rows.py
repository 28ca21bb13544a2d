"""A report as plain dicts, for JSON."""

from __future__ import annotations

from typing import Any

from tui_debugger.session.guidance.rows import guidance_row
from tui_debugger.session.origin.rows import report_rows
from tui_debugger.session.reporting.material import Material
from tui_debugger.session.tables import coverage_row, hit_row, part_rows, watch_row

Row = dict[str, Any]


def material_row(material: Material, most: int) -> Row:
    """Everything that the report says; ``most`` hits, and how many there are."""
    judgement, info = material.judgement, material.info
    hits = [*judgement.failing[:most], *judgement.others[:most]][:most]
    return {
        "run": {
            "title": info.title,
            "layout": info.layout,
            "framework_version": info.framework_version,
            "device": info.device,
            "ranks": list(material.ranks),
            "steps": list(material.steps),
        },
        "reasons": [{"kind": doubt.kind, "text": doubt.text} for doubt in judgement.doubts],
        "unreadable": part_rows(material.result.coverage.parts),
        "watchpoints": [
            {
                **watch_row(tally.watchpoint, tally.tensors),
                "findings": tally.findings,
                "blocked": tally.blocked.tensors,
                "by_design": tally.by_design,
            }
            for tally in judgement.tallies
        ],
        "coverage": coverage_row(material.result.coverage),
        "findings": len(judgement.failing) + len(judgement.others),
        "hits": [hit_row(hit) for hit in hits],
        "origins": report_rows(material.origins) if material.origins is not None else None,
        "explained": [guidance_row(each) for each in material.explained],
        "notices": [*info.notices, *material.troubles],
        "cancelled": material.result.cancelled,
    }
