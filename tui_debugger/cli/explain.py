"""``tdbg explain PATH NODE[:slot]``: the usual causes of the findings on a tensor, with this tensor's numbers."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_node,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    given_watchpoints,
    open_pairs,
)
from tui_debugger.cli.output import Answer, outcome_of, print_exit, print_text, unseen
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.text.writer import Meaning, Terminal, meant, terminal_of, write_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tui_debugger.check.types import Pair, TensorRow
    from tui_debugger.diagnose.explain.guidance import Guidance
    from tui_debugger.model import Hit, ProgressFn, TensorKey
    from tui_debugger.session import Session
    from tui_debugger.session.naming import FoundNode

DESCRIPTION = """\
Says for every finding on a node what usually causes it, what the tensors around
it say for or against each cause, and what to look at next. Without --step that
is the first step with a finding, else the last dumped one.
"""
EPILOG = """\
exit codes:
  0    no finding on this tensor
  1    a finding, explained
  2    cannot judge: no dump at the path, no such node, a wrong argument, a
       tensor that cannot be read, or only statistics where a watchpoint needs
       values
  130  interrupted

examples:
  tdbg explain DUMP Log-op381
  tdbg explain DUMP head.weight --watch 'WCL abs_mean_update_ratio_gt=0.1'
"""
WIDTH = 80
_MOST = 8
"""The number of tensors of a node that are explained: a Split may have hundreds of outputs."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "explain",
        "say what causes a finding, and what to look at next",
        DESCRIPTION,
        EPILOG,
        answer=_explained,
    )
    add_node(parser)
    add_watches(
        parser,
        "explain what this watchpoint finds (may be repeated); without any the recommended ones are used",
        "explain what the watchpoints of this TOML file find (may be repeated)",
    )
    add_where(parser)
    add_work(parser)


def _explained(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.diagnose.explain.explain import explain, known_hit
    from tui_debugger.diagnose.explain.guidance import guidance_row
    from tui_debugger.graph.search import NodeQuery
    from tui_debugger.model import Verdict
    from tui_debugger.session.naming import find_in

    given = given_watchpoints(arguments)
    session, pairs = open_pairs(arguments, progress)
    node = find_in(session, sorted({rank for rank, _ in pairs}), arguments.node, progress)
    # Only this node is judged: what surrounds it is measured, and need not be found wrong for that.
    exactly = f"^{re.escape(node.node)}$"
    session.restrict(NodeQuery(text=exactly, regex=True, case_sensitive=True, graphs=frozenset({node.graph})))
    add_watchpoints(session, given, recommended=not given)
    hits = _hits(session, node, pairs, progress)
    doubtful = False
    if hits:
        found = [explain(session, hit.key, hit, progress) for hit in hits[:_MOST]]
    else:
        keys = _plain(session, node, pairs)
        known = [known_hit(session, key)[0] for key in keys]
        doubtful = any(
            result.verdict is Verdict.CANNOT_JUDGE for hit in known if hit is not None for result in hit.results
        )
        found = [explain(session, key, None, progress) for key in keys]
    return Answer(
        code=outcome_of(
            finding=any(each.finding for each in found),
            doubt=doubtful or all(each.tensor.stats is None for each in found),
        ),
        missing=unseen(session, pairs),
        document=lambda: {"tensors": [guidance_row(each) for each in found]},
        show=lambda code: _print(found, arguments.path, code),
    )


def _print(found: Sequence[Guidance], path: Path, code: int) -> None:
    words = {0: "no finding on this tensor", 1: "a finding, explained"}.get(code, "")
    counted = _counted(found, doubtful=code == TdbgError.exit_code)
    for number, each in enumerate(found):
        write_lines(*([""] if number else []), *text_lines(each, path, terminal_of()))
    if terminal_of() is not None:
        print_text("", counted)
        print_exit(code, words)


def _hits(session: Session, found: FoundNode, pairs: Sequence[Pair], progress: ProgressFn) -> list[Hit]:
    """The findings on the node at the earliest step with findings, of the first rank."""
    from tui_debugger.model import Side, Verdict

    of_node = [pair for pair in pairs if pair[0] in found.rows]
    result = session.check(of_node, progress)
    if result.cancelled:
        raise CancelledError("interrupted")
    hits = [
        hit
        for hit in result.hits.with_verdict(Verdict.FINDING)
        if hit.key.node == found.node and hit.key.graph == found.graph and _asked(hit.key, found)
    ]
    hits = [hit for hit in hits if (hit.key.step, hit.key.rank) == (hits[0].key.step, hits[0].key.rank)]
    outputs = [hit for hit in hits if hit.key.side is Side.OUTPUT]
    # What went in bad is said by the explanation of what came out.
    return outputs or hits if not found.asked.role else hits


def _asked(key: TensorKey, found: FoundNode) -> bool:
    asked = found.asked
    return (
        asked.role in ("", "param", key.side.label) and asked.slot in (None, key.slot) and asked.round in (0, key.round)
    )


def _plain(session: Session, found: FoundNode, pairs: Sequence[Pair]) -> list[TensorKey]:
    """The asked tensors of the node at its last step (default: outputs). Raises TdbgError if none was dumped."""
    from tui_debugger.session.naming import no_such_tensor

    there: list[TensorRow] = []
    for rank, step in reversed([pair for pair in pairs if pair[0] in found.rows]):
        dumped = [row for row in found.tensors(session, rank, step) if row.index >= 0]
        there += dumped
        if chosen := found.meant(dumped):
            return [row.key for row in (chosen if found.asked.role else chosen[:1])][:_MOST]
    raise no_such_tensor(found, there, "" if there else "nothing of this node was dumped at the chosen steps")


def _counted(found: Sequence[Guidance], *, doubtful: bool) -> str:
    from tui_debugger.text.numbers import plural

    findings = sum(each.finding for each in found)
    if findings:
        return meant(f"FINDINGS: on {findings:,} of {plural(len(found), 'tensor')} of this node", Meaning.FINDING)
    if doubtful:
        return meant(f"cannot judge: {plural(len(found), 'tensor')} of this node", Meaning.DOUBT)
    return meant(f"clean: no finding on {plural(len(found), 'tensor')} of this node", Meaning.CLEAN)


def text_lines(guidance: Guidance, path: Path, terminal: Terminal | None = None) -> list[str]:
    """The guidance in lines, each advice with its command.

    On a narrow terminal a command goes on in the next line, as a shell takes it; names in it are never cut.
    """
    from tui_debugger.diagnose.explain.guidance import LineKind, lines
    from tui_debugger.text.clean import clean

    width = WIDTH if terminal is None else min(WIDTH, terminal.columns)
    meanings = {
        LineKind.TITLE: Meaning.FINDING if guidance.finding else None,
        LineKind.LIKELY: Meaning.FINDING,
        LineKind.UNKNOWN: Meaning.DOUBT,
        LineKind.MISSING: Meaning.DOUBT,
    }
    out: list[str] = []
    for line in lines(guidance):
        out += [meant(part, meanings.get(line.kind)) for part in line.wrapped(width)]
        if line.kind is LineKind.ADVICE and line.advice is not None and line.advice.arguments:
            name, *rest = line.advice.arguments
            words = [clean(shlex.quote(word)) for word in ("tdbg", name, str(path), *rest)]
            out += [
                " " * 8 + part for part in _command_lines(words, None if terminal is None else terminal.columns - 8)
            ]
    return out


def _command_lines(words: Sequence[str], width: int | None) -> list[str]:
    r"""Returns a command in lines that can be pasted into a shell: all but the last end with ``\``."""
    from tui_debugger.text.tables import width_of

    if width is None or width_of(" ".join(words)) <= width:
        return [" ".join(words)]
    found = [words[0]]
    for word in words[1:]:
        if width_of(f"{found[-1]} {word} \\") <= width:
            found[-1] += f" {word}"
        else:
            found.append(f"  {word}")
    return [*(f"{line} \\" for line in found[:-1]), found[-1]]


__all__ = ["register", "text_lines"]
