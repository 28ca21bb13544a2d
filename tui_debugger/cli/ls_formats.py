"""``tdbg ls --formats``: the known layouts, how to record each, and the layout of the dump at a path."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tui_debugger.cli.output import Answer, note, outcome_of, print_table, print_text
from tui_debugger.errors import TdbgError
from tui_debugger.sources.registry import (
    Claim,
    Edges,
    Format,
    Has,
    Order,
    Shows,
    claims,
    known_formats,
    limits_of,
    word_of,
)
from tui_debugger.text.documents import Row, row_of
from tui_debugger.text.tables import Column, Cut

ABILITIES: Final = ("values", "statistics", "hashes", "order", "edges", "stacks", "gradients")
"""The possible abilities of a layout, by the names in ``Shows``."""
_COLUMNS: Final = [Column("layout"), *(Column(name) for name in ABILITIES[:-1]), Column(ABILITIES[-1], cut=Cut.END)]


def formats(arguments: Namespace) -> Answer:
    """Answers with all layouts, the layout that PATH names, or the layout of the dump at PATH."""
    known, problems = known_formats()
    if arguments.path is None:
        return Answer(
            notices=problems,
            document=lambda: {"formats": [format_row(each) for each in known]},
            show=lambda _: _print_all(known),
        )
    named = _named(word_of(str(arguments.path)), known, path=arguments.path)
    if named is None:
        return _explain(arguments, known)
    return Answer(notices=problems, document=lambda: {"formats": [format_row(named)]}, show=lambda _: _describe(named))


def _named(wanted: str, known: Sequence[Format], *, path: Path) -> Format | None:
    """Returns the layout of that name, or the only one whose name begins so if there is no such path."""
    found = [each for each in known if word_of(each.name) == wanted]
    if not found and wanted and not path.exists():
        found = [each for each in known if word_of(each.name).startswith(wanted)]
    return found[0] if len(found) == 1 else None


def _print_all(known: Sequence[Format]) -> None:
    print_table(_COLUMNS, [(word_of(each.name), *ability_words(each.shows)) for each in known])
    print_text("", "some: where it was recorded. `tdbg ls --formats NAME` says how to record one.")


def ability_words(shows: Shows) -> list[str]:
    return [getattr(shows, name).value for name in ABILITIES]


def format_row(each: Format) -> Row:
    """Returns a layout for JSON; unknown values are null."""
    words = dict(zip(ABILITIES, ability_words(each.shows), strict=True))
    return {
        "name": word_of(each.name),
        "title": each.name,
        **{name: None if word == Has.UNKNOWN.value else word for name, word in words.items()},
        "limits": list(_limits(each.shows)),
        "looked_for": each.looked_for,
        "record": list(each.shows.record),
        "package": each.package or None,
    }


def _limits(shows: Shows) -> tuple[str, ...]:
    """Returns sentences that say what no verdict on a dump of the layout can tell."""
    return limits_of(shows, graph=shows.edges is not Edges.NONE)


def _describe(each: Format) -> None:
    print_text(f"{each.name}: {_sentence(each.shows)}")
    print_text(f"recognised by {each.looked_for}", *_limits(each.shows))
    if each.package:
        print_text(f"read by {each.package}")
    if each.shows.record:
        print_text("", "to record it:", *(f"  {line}" for line in each.shows.record))


def _sentence(shows: Shows) -> str:
    """``values some, statistics yes; order of execution; edges known``."""
    order = {Order.EXECUTION: "order of execution", Order.NAMES: "order of names"}.get(shows.order, "order ?")
    words = dict(zip(ABILITIES, ability_words(shows), strict=True))
    has = ", ".join(f"{name} {word}" for name, word in words.items() if name not in {"order", "edges"})
    return f"{has}; {order}; edges {words['edges']}"


def _explain(arguments: Namespace, known: list[Format]) -> Answer:
    path = arguments.path
    try:
        found, notices = claims(path)
    except TdbgError as error:
        if path.exists() or path.name != str(path):
            raise
        names = ", ".join(word_of(each.name) for each in known)
        raise TdbgError(
            f"neither a layout nor a path: {path}", where=error.where, hint=f"name a path, or one of {names}"
        ) from None
    return Answer(
        code=outcome_of(doubt=not found[0].opens),
        document=lambda: {"found": [claim_row(each) for each in found], "notices": list(notices)},
        show=lambda _: _print_claims(found, notices),
    )


def _print_claims(found: Sequence[Claim], notices: Iterable[str]) -> None:
    for notice in notices:
        note(notice)
    best, *others = found
    if best.opens:
        print_text(f"{best.format.name} opens {best.found.root} ({best.found.sureness.name.lower()})")
        print_text(_because(best), *_limits(best.format.shows))
    elif best.found.refusal is not None:
        print_text(f"{best.format.name}: cannot be opened: {best.found.refusal.what}", best.found.refusal.hint)
    for other in others:
        refusal = other.found.refusal
        why = f": {refusal.what}" if refusal is not None else f", {_because(other)}"
        print_text(f"{other.format.name} recognises {other.found.root} too ({other.found.sureness.name.lower()}){why}")


def _because(claim: Claim) -> str:
    """``because of step_0/a.npy``; names the reader if it does not say what it recognised."""
    return f"because of {claim.found.why}" if claim.found.why else f"it looks for {claim.format.looked_for}"


def claim_row(claim: Claim) -> Row:
    refusal = claim.found.refusal
    return {
        "name": word_of(claim.format.name),
        "opens": claim.opens,
        "root": str(claim.found.root),
        "sureness": claim.found.sureness.name.lower(),
        "why": claim.found.why or None,
        "looked_for": claim.format.looked_for,
        "refusal": None if refusal is None else row_of(refusal, "what", "hint"),
        "limits": list(_limits(claim.format.shows)),
    }
