"""``tdbg origin``: the first node that turns clean inputs into a bad output."""

from __future__ import annotations

import shlex
from argparse import Namespace
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_watches,
    add_where,
    add_work,
    enabled_watchpoints,
    open_pairs,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tui_debugger.check.types import Pair
    from tui_debugger.cli.output import Answer
    from tui_debugger.diagnose.run import DiagnosedRun
    from tui_debugger.model import ProgressFn

DESCRIPTION = """\
Finds the first node, in step and execution order, whose inputs are clean and
whose output has NaN or Inf (or, with --watch, a finding), and how it spread.
With --from: the path upstream from one tensor to where its bad values begin,
over steps and ranks, with statistics at every hop.
"""
EPILOG = """\
The search goes step by step over all ranks and ends with the first step that
has an origin. It also ends with a bad step that has none but leaves bad
parameters behind, because whatever comes later is made from those.

exit codes:
  0    nothing bad in what was covered
  1    something bad was found; it outranks "cannot judge"
  2    cannot judge: no dump at the path, nothing looked at, a watchpoint that
       looked at no tensor, tensors that could not be read or compared, or a
       part of the dump that could not be listed; a wrong argument
  130  interrupted: what was finished is printed

An origin has evidence: everything that its node was made from is known, and
clean. Of another bad node that nothing bad is known to have gone into it says
"not judged", with what is missing; where no origin has evidence the first known
bad tensor is named, with what to dump to know more.

examples:
  tdbg origin DUMP
  tdbg origin DUMP --step 4-9 --rank 0
  tdbg origin DUMP --watch 'TZ @ category=activation'
  tdbg origin DUMP --watch 'TL abs_mean_gt=100' --watch TO --json
  tdbg origin DUMP --from head.weight --step 5
"""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "origin",
        "find where a NaN or Inf starts",
        DESCRIPTION,
        EPILOG,
        answer=_searched,
        judges=True,
        several=True,
    )
    add_watches(
        parser,
        "look for this instead of NaN and Inf, for example 'TL max_gt=100 @ category=gradient' (may be repeated)",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="NODE[:slot]",
        help="go upstream from this tensor, at the first step and rank where it is bad; as for tdbg show",
    )
    parser.add_argument(
        "--spread",
        type=whole("a number of nodes"),
        default=5,
        metavar="N",
        help="how many of the following bad nodes to list (default: 5)",
    )
    add_where(parser)
    add_work(parser)


def _searched(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.check.verdicts import judge
    from tui_debugger.cli.origin_report import FoundOrigins, upstream

    watchpoints = enabled_watchpoints(arguments)
    session, pairs = open_pairs(arguments, progress)
    if arguments.start is not None:
        return upstream(session, pairs, arguments, watchpoints, progress)
    report = session.find_origin(pairs, watchpoints, progress, arguments.spread)
    recorded = () if watchpoints else _recorded(session, sorted(set(pairs) - set(report.left)), arguments.path)
    judgement = judge(report.check, rules=frozenset(watch.id for watch in watchpoints))
    return FoundOrigins(report, judgement, session.info.notices, (*session.info.limits, *recorded)).answer()


def _recorded(session: DiagnosedRun, pairs: Sequence[Pair], path: Path) -> tuple[str, ...]:
    """Says that the device recorded overflows if the search saw values only: these may have been clipped."""
    import numpy as np

    from tui_debugger.check.hits import overflowed_nodes

    nodes, first = 0, ""
    for rank, step in pairs:
        flow = session.flow(rank)
        marked = overflowed_nodes(flow.table(step), len(flow.nodes))
        if marked is None or not marked.any():
            continue
        nodes += int(marked.sum())
        first = first or f"{flow.nodes.names[int(np.argmax(marked))]} at step {step} of rank {rank}"
    if not nodes:
        return ()
    command = shlex.join(("tdbg", "origin", str(path), "--watch", "OO"))
    times = "an operator" if nodes == 1 else f"{nodes} runs of operators"
    return (f"the device recorded an overflow of {times}, such as {first}, whatever the values show: {command}",)
