"""The query of ``select_nodes`` and ``select_tensors``, checked."""

from __future__ import annotations

from collections.abc import Callable

from tui_debugger.api.arguments import checked
from tui_debugger.errors import BadQueryError, DebuggerParamValueError
from tui_debugger.graph.search import compile_pattern


class Query:
    """What nodes are selected by.

    Attributes:
        text: what to look for.
        by_stack: in the entries of stacks, not in names.
        matches: whether a name, or an entry, matches.
    """

    def __init__(self, text: str, use_regex: bool, select_by: str, case_sensitive: bool) -> None:
        """Checks the arguments of ``DumpAnalyzer.select_nodes``.

        Raises:
            DebuggerParamTypeError: an argument of a wrong type.
            DebuggerParamValueError: another ``select_by``, or no regular expression.
        """
        self.text = checked(text, "query_string", str, "a str")
        regex = checked(use_regex, "use_regex", bool, "a bool")
        case = checked(case_sensitive, "case_sensitive", bool, "a bool")
        if select_by not in ("node_name", "code_stack"):  # a set cannot be asked about a list
            raise DebuggerParamValueError(
                f"select_by is {select_by!r}", hint='select_by takes "node_name" or "code_stack"'
            )
        self.by_stack = select_by == "code_stack"
        self.matches = _searched(text, case) if regex else _contained(text, case)


def _searched(text: str, case: bool) -> Callable[[str], bool]:
    try:
        search = compile_pattern(text, case_sensitive=case).search
    except BadQueryError as error:
        raise DebuggerParamValueError(error.what, where=error.where, hint=error.hint) from error
    return lambda each: search(each) is not None


def _contained(text: str, case: bool) -> Callable[[str], bool]:
    lower = text.lower()
    return (lambda each: text in each) if case else (lambda each: lower in each.lower())
