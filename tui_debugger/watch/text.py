r"""A watchpoint as one line of text: ``TL abs_mean_gt=0.5 @ category=weight, -re=bias$``.

Grammar::

    watchpoint = condition *( name "=" value ) [ "@" selection ]
    watchpoint = "EX" expression [ "@" selection ]      ; see ``watch.expression``
    selection  = [ clause *( "," clause ) ]
    clause     = [ "-" ] ( kind "=" text / regular expression )
    kind       = "category" / "re" / "node" / "scope" / "type"

The condition is an abbreviation or an id. Without ``@`` the watchpoint covers the condition's target category; with
only excluding clauses, that category without them; with an empty selection, nothing yet. A comma in a text is written
``\,``; other backslashes are literal, but before a separating comma ``\\`` is one. A text with blanks at its ends, or a
backslash at its end, is put into double quotes, with ``\"`` and ``\\`` inside.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import SELECTION_WORDS, NodeKind, NodeSelection, NodeSelector, ParamValue, Watchpoint
from tui_debugger.watch.condition_table import (
    CONDITIONS,
    EXPRESSION,
    Condition,
    Params,
    ParamSpec,
    by_abbr,
    is_condition,
    validate,
)

_KINDS: Final = {
    "category": NodeKind.CATEGORY,
    "re": NodeKind.REGEX,
    "node": NodeKind.NODE,
    "scope": NodeKind.SCOPE,
    "type": NodeKind.TYPE,
}
_WORDS: Final = {kind: word for word, kind in _KINDS.items()}
_CLAUSE: Final = re.compile(rf"({'|'.join(_KINDS)})\s*=\s*(.*)", re.DOTALL)
_SIGNS: Final = {">": "gt", "<": "lt", ">=": "ge", "<=": "le"}
_COMPARES: Final = re.compile("[<>]")
_COMPARISON: Final = re.compile(r"(\w+)\s*([<>]=?)\s*([-+.\w]+)")
_BACKSLASHES: Final = re.compile(r"\\+")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_EXAMPLE: Final = "write it like: TL abs_mean_gt=0.5 @ category=weight, -re=bias$"


def target_selection(condition: Condition) -> NodeSelection:
    return NodeSelection((NodeSelector(NodeKind.CATEGORY, condition.target),))


def _parse_named(text: str) -> tuple[str, Params, NodeSelection]:
    start = text.partition("@")[0].split(None, 1)
    if not start:
        msg = "a watchpoint starts with its condition"
        raise BadWatchpointError(msg, where=text, hint=_EXAMPLE)
    condition = by_abbr(start[0])
    own = condition.is_expression
    head, at, tail = _outside_quotes(text) if own else text.partition("@")
    words = head.split(None, 1 if own else -1)
    if own:
        pairs = [(EXPRESSION, condition.param(EXPRESSION).parse(words[1]))] if words[1:] else []
    else:
        pairs = [_pair(condition, word) for word in words[1:]]
    if len(dict(pairs)) < len(pairs):
        msg = "a parameter is set twice"
        raise BadWatchpointError(msg, where=text.strip())
    params = validate(condition.id, dict(pairs))
    selection = target_selection(condition)
    if at:
        given = parse_selection(tail)
        only_excludes = given.exclude and not given.include
        selection = NodeSelection(selection.include, given.exclude) if only_excludes else given
    return condition.id, params, selection


def parse_watch(text: str) -> tuple[str, Params, NodeSelection]:
    """Returns condition id, parameters in definition order, and selection; or raises BadWatchpointError.

    A comparison needs no condition: ``max > 100`` is ``TL max_gt=100``, one that no condition has is an expression.
    """
    head, at, tail = _outside_quotes(text)
    first = head.split(None, 1)
    if _COMPARES.search(head) is None or (first and is_condition(first[0])):
        return _parse_named(text)
    start = f"EX {head}"
    if (found := _COMPARISON.fullmatch(head.strip())) is not None:
        quantity, sign, value = found.groups()
        name = f"{quantity.lower()}_{_SIGNS[sign]}"
        own = (each.abbr for each in CONDITIONS.values() for spec in each.params if spec.name == name)
        start = next((f"{abbr} {name}={value}" for abbr in own), start)
    return _parse_named(f"{start} {at}{tail}")


def format_watch(watchpoint: Watchpoint) -> str:
    """Returns the text of a watchpoint, from which ``parse_watch`` restores condition, parameters and nodes."""
    condition = CONDITIONS[watchpoint.condition]
    words = [condition.abbr, *(_set(name, value) for name, value in watchpoint.params)]
    target = target_selection(condition)
    selection = watchpoint.selection
    if selection != target:
        # Excluding clauses alone would be read as "the target without these", so an empty selection drops them.
        words += ["@", format_selection(selection)] if selection.include else ["@"]
    return " ".join(words)


def _set(name: str, value: ParamValue) -> str:
    return value if isinstance(value, str) else f"{name}={format_value(value)}"


def format_value(value: ParamValue) -> str:
    """Returns the shortest exact text of a value: ``100``, ``1e-05``, ``true``, an expression."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def parse_selection(text: str) -> NodeSelection:
    """Reads a selection, or raises BadWatchpointError; empty text selects nothing."""
    include: list[NodeSelector] = []
    exclude: list[NodeSelector] = []
    for clause in _split(text) if text.strip() else ():
        negative = clause.startswith("-")
        (exclude if negative else include).append(_selector(clause[negative:].strip(), text))
    return NodeSelection(tuple(include), tuple(exclude))


def format_selection(selection: NodeSelection) -> str:
    clauses = [_clause(selector) for selector in selection.include]
    clauses += ["-" + _clause(selector) for selector in selection.exclude]
    return ", ".join(clauses)


def _outside_quotes(text: str) -> tuple[str, str, str]:
    """Splits a text at its first ``@`` outside of quotes."""
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "@":
            return text[:at], "@", text[at + 1 :]
    return text, "", ""


def _pair(condition: Condition, word: str) -> tuple[str, ParamValue]:
    name, equals, value = word.partition("=")
    if not equals:
        msg = f"{word!r} is not name=value"
        raise BadWatchpointError(msg, hint=_EXAMPLE)
    spec: ParamSpec = condition.param(name)
    return name, spec.parse(value)


def _selector(clause: str, text: str) -> NodeSelector:
    match = _CLAUSE.fullmatch(clause)
    kind = _KINDS[match[1]] if match else NodeKind.REGEX
    body = _unquote(match[2] if match else clause, text)
    if not body and not (match and kind is NodeKind.REGEX):
        msg = "a part of the selection is empty"
        raise BadWatchpointError(msg, where=text.strip(), hint=_EXAMPLE)
    if kind is NodeKind.REGEX:
        _check_regex(body)
    if kind is NodeKind.CATEGORY:
        body = body.lower()
        if body not in SELECTION_WORDS:
            msg = f"no category is called {body!r}"
            raise BadWatchpointError(msg, where=text.strip(), hint="one of " + ", ".join(SELECTION_WORDS))
    return NodeSelector(kind, body)


def _check_regex(pattern: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set" is for authors of programs
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"not a regular expression: {error}"
        raise BadWatchpointError(msg, where=pattern) from error


def _split(text: str) -> list[str]:
    """Splits at commas that are neither escaped nor quoted, and removes the escapes."""
    clauses: list[str] = []
    current = ""
    at = 0
    while at < len(text):
        quoted = _QUOTED.match(text, at) if _may_quote(current) else None
        if quoted:
            current += quoted[0]
            at = quoted.end()
            continue
        run = _BACKSLASHES.match(text, at)
        slashes = len(run[0]) if run else 0
        if slashes and text[at + slashes : at + slashes + 1] == ",":
            current += "\\" * (slashes // 2)
            at += slashes
            if slashes % 2:
                current += ","
                at += 1
        elif slashes:
            current += "\\" * slashes
            at += slashes
        elif text[at] == ",":
            clauses.append(current.strip())
            current = ""
            at += 1
        else:
            current += text[at]
            at += 1
    return [*clauses, current.strip()]


def _may_quote(current: str) -> bool:
    """Tells whether a quote may open here: at the start of a clause's text."""
    body = current.strip().removeprefix("-").strip()
    return not body or (body.endswith("=") and body[:-1].strip() in _KINDS)


def _unquote(body: str, text: str) -> str:
    if not body.startswith('"'):
        return body
    match = _QUOTED.fullmatch(body)
    if not match:
        msg = "a quote is not closed"
        raise BadWatchpointError(msg, where=text.strip())
    return re.sub(r'\\(["\\])', r"\1", match[1])


def _clause(selector: NodeSelector) -> str:
    body = selector.text
    quote = body != body.strip() or body.startswith('"') or body.endswith("\\")
    if quote:
        body = '"' + re.sub(r'(["\\])', r"\\\1", body) + '"'
    else:
        body = re.sub(r"(\\*),", lambda match: match[1] * 2 + "\\,", body)
    bare = selector.kind is NodeKind.REGEX and body and body[0] not in '-"' and not _CLAUSE.match(body)
    return body if bare else f"{_WORDS[selector.kind]}={body}"
