"""``tdbg show PATH NODE[:slot] [SLICE]``: the tensors of a node, a line each, and their values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_node,
    add_where,
    add_work,
    chosen,
    flag,
    open_session,
    whole,
)
from tui_debugger.cli.output import Answer, from_on, unseen
from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.session.naming import FoundNode

LOOKED_BACK = 100
"""The number of steps to look through, from the last one backwards, for a step with the node."""
MAX_PRECISION = 10

Parse = Callable[..., tuple[Namespace, list[str]]]


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "show",
        "show the values of a node",
        "Shows the inputs, outputs and parameters of a node: type, shape, how the values are spread "
        "between the smallest and the greatest one, mean μ and deviation σ of the finite ones, zeros, NaN and Inf; "
        "then the values. Without --step that is the last dumped step; several steps give one line each.",
        answer=_shown,
        usage="tdbg show PATH NODE[:slot] [SLICE] [options]",
    )
    add_node(parser)
    parser.add_argument(
        "slice",
        nargs="?",
        metavar="SLICE",
        help="which values, at most two dimensions of them: '[0, :, 3:9]', '[..., -1]'",
    )
    flag(parser, "--stat", "full statistics (of every step) instead of values")
    flag(
        parser,
        "--distribution",
        "how the values are spread instead of the values: counts, percentiles, headroom to overflow, histogram",
    )
    parser.add_argument(
        "--bins",
        type=whole("a number from 1 to 10000", 1, 10000),
        default=20,
        metavar="N",
        help="with --distribution: so many bins, or a few less (default: 20)",
    )
    flag(parser, "--log", "with --distribution: bins by powers of two, not of equal width")
    flag(
        parser,
        "--heat",
        "a heat map of the slice (without one, of the first plane) instead of numbers; no NaN or Inf is hidden",
    )
    parser.add_argument(
        "--precision",
        type=whole(f"a number from 0 to {MAX_PRECISION}", most=MAX_PRECISION),
        default=4,
        metavar="N",
        help="digits after the point, 0 to 10 (default: 4)",
    )
    add_where(parser, step="steps, for example 0,4-6 (default: the last dumped one)")
    add_work(parser)
    # Subparsers take no class of their own, so the one method is replaced.
    parser.parse_known_args = _any_order(parser.parse_known_args)  # type: ignore[method-assign,assignment]  # see above


def _any_order(parse: Parse) -> Parse:
    """Accepts SLICE after an option as well: argparse gives up on an optional positional too early."""

    def parse_known_args(*arguments: Any, **named: Any) -> tuple[Namespace, list[str]]:
        found, rest = parse(*arguments, **named)
        if found.slice is None and rest and not rest[0].startswith("-"):
            found.slice = rest.pop(0)
        return found, rest

    return parse_known_args


def _shown(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.cli.show_report import ShowOptions, canvas, distributions_of, look, spreads, tensors
    from tui_debugger.session.naming import find_in

    _take_slot(arguments)
    wanted = [option for option in ("stat", "distribution", "heat") if getattr(arguments, option)]
    if len(wanted) > 1:
        raise TdbgError(f"--{wanted[0]} and --{wanted[1]} are two answers", hint="leave one of them out")
    for option in ("stat", "distribution"):
        if getattr(arguments, option) and arguments.slice is not None:
            hint = f"leave --{option} or the slice out"
            raise TdbgError(f"--{option} is about whole tensors", where=arguments.slice, hint=hint)
    session = open_session(arguments, progress)
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    found = find_in(session, ranks, arguments.node, progress)
    pairs = _pairs(session, found, arguments)
    one = arguments.step is None or len({step for _, step in pairs}) == 1
    lines = not (arguments.stat or arguments.distribution)
    values = lines and (one or arguments.heat or arguments.slice is not None)
    on = canvas(progress) if arguments.heat else None
    wish = ShowOptions(values, lines, arguments.slice, arguments.precision, arguments.json, on)
    shown = look(session, found, pairs, wish, progress)
    if arguments.distribution:
        inspected = distributions_of(session, shown, arguments, progress)
        answer = spreads(session, found, inspected)
    else:
        answer = tensors(session, found, shown, stats=arguments.stat, values=values)
    return replace(answer, missing=unseen(session, from_on(session, pairs), graph=False))


def _take_slot(arguments: Namespace) -> None:
    """Reads ``NODE in:0``, as ``tdbg origin`` prints it, as ``NODE:in:0``: no slice looks like a slot."""
    from tui_debugger.session.naming import is_slot

    if arguments.slice is not None and is_slot(arguments.slice):
        arguments.node, arguments.slice = f"{arguments.node}:{arguments.slice.strip()}", None


def _pairs(session: Session, found: FoundNode, arguments: Namespace) -> list[Pair]:
    """The (rank, step) pairs to look at: the chosen ones; else all for --stat; else the last dumped one.

    Raises TdbgError for a step that was not dumped, or if nothing was.
    """
    if arguments.step is not None or arguments.stat:
        steps = chosen(arguments.step, (step for rank in found.rows for step in session.steps(rank)), "step")
        pairs = list(session.pairs(found.rows, steps))
    else:
        last = {rank: _last_step(session, rank, row) for rank, row in found.rows.items()}
        order = {pair: number for number, pair in enumerate(session.pairs(found.rows))}
        pairs = [(rank, step) for rank, step in last.items() if step is not None]
        pairs.sort(key=lambda pair: order.get(pair, len(order)))
    if not pairs:
        raise TdbgError("no step was dumped", where=str(arguments.path), hint="`tdbg ls --steps` lists what ran")
    return pairs


def _last_step(session: Session, rank: int, row: int) -> int | None:
    """The last step with a tensor of the node; without such a step the last one in which its graph has data."""
    flow = session.flow(rank)
    root = flow.nodes.graph_of(row).root_id
    steps = [run.step for run in session.history(rank) if run.has_data and run.root_graph == root]
    for step in reversed(steps[-LOOKED_BACK:]):
        if len(flow.table(step).of_node(row)):
            return step
    return steps[-1] if steps else None
