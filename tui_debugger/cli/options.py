"""The options that commands share: which run, steps and tensors, and which watchpoints."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.cli.output import note, nowhere, say_scope
from tui_debugger.errors import BadWatchpointError, TdbgError
from tui_debugger.text.numbers import brief

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from tui_debugger.check.sweep import TensorChoice
    from tui_debugger.check.types import Pair
    from tui_debugger.config import Config
    from tui_debugger.model import Category, ProgressFn, Watchpoint
    from tui_debugger.session import Session
    from tui_debugger.stats.workers import MeasureWorkers


MAX_SLOT = 32767
"""The greatest number a slot can have."""
CONSTANTS = "constants are left out unless --category names them (constant)"


def add_choice(parser: argparse.ArgumentParser) -> None:
    """The options ``--side``, ``--slot`` and ``--category``."""
    group = parser.add_argument_group("which tensors of a node")
    group.add_argument("--side", choices=("in", "out", "all"), default="all", help="inputs, outputs or both (default)")
    group.add_argument("--slot", type=spans, metavar="N", help="inputs or outputs by number, for example 0,2-3")
    group.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="WORD",
        help="only nodes of these categories, for example weight,gradient (may be repeated); " + CONSTANTS,
    )


def choice_of(arguments: argparse.Namespace) -> TensorChoice:
    """Returns what the options choose.

    Raises:
        TdbgError: no category is called so.
    """
    from tui_debugger.check.sweep import TensorChoice
    from tui_debugger.model import CATEGORY_WORDS, Side

    categories = categories_of(arguments.category)
    return TensorChoice(
        side={"in": Side.INPUT, "out": Side.OUTPUT}.get(arguments.side),
        slots=None if arguments.slot is None else _slots(arguments.slot),
        categories=categories or CATEGORY_WORDS["tensor"],
    )


def categories_of(texts: Sequence[str]) -> frozenset[Category]:
    """The categories in texts like ``weight,gradient``; none for no text.

    Raises:
        TdbgError: no category is called so.
    """
    from tui_debugger.model import CATEGORY_WORDS

    words = [word.strip().lower() for text in texts for word in text.split(",")]
    for word in words:
        if word not in CATEGORY_WORDS:
            raise TdbgError(
                f"no category is called {word!r}",
                where=f"--category {','.join(texts)}",
                hint="one of " + ", ".join(CATEGORY_WORDS),
            )
    return frozenset(category for word in words for category in CATEGORY_WORDS[word])


def _slots(wanted: Sequence[Span]) -> frozenset[int]:
    return frozenset(slot for first, last in wanted for slot in range(first, min(last, MAX_SLOT) + 1))


def nothing_chosen(path: Path) -> TdbgError:
    """The error when no tensor is left."""
    return TdbgError(
        "no tensor matches", where=str(path), hint=f"`tdbg ls` lists the nodes and what they have; {CONSTANTS}"
    )


_FILE: Final = "a TOML file of watchpoints, as the screen saves them (may be repeated)"


def add_watches(
    parser: argparse.ArgumentParser,
    watch: str = "a watchpoint, for example 'TL abs_mean_gt=0.001 @ category=gradient' (may be repeated)",
    watch_file: str = _FILE,
) -> None:
    """``--watch`` and ``--watch-file``, with help where a command does something else with them."""
    parser.add_argument("--watch", action="append", default=[], metavar="TEXT", help=watch)
    parser.add_argument("--watch-file", action="append", default=[], type=Path, metavar="FILE", help=watch_file)


def add_recommended(
    parser: argparse.ArgumentParser, says: str = "add the recommended watchpoints to the given ones"
) -> None:
    """``--recommended``, of the commands that judge."""
    parser.add_argument("--recommended", action="store_true", help=says)


def add_judging(parser: argparse._ActionsContainer) -> None:
    """Adds what makes the exit code: the options of the commands for CI."""
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="TO,TZ",
        help="only findings of these conditions give exit code 1; the others are listed all the same",
    )
    parser.add_argument(
        "--allow-unreadable",
        action="store_true",
        help="exit code 0 although some tensors could not be read or compared, or parts of the dump not listed",
    )
    parser.add_argument(
        "--allow-unmatched",
        action="store_true",
        help="exit code 0 although a watchpoint of --watch or --watch-file looked at no tensor",
    )


def given_watchpoints(arguments: argparse.Namespace) -> tuple[Watchpoint, ...]:
    """Returns what --watch and --watch-file say, disabled ones included; empty only when neither was given.

    Raises:
        BadWatchpointError: naming the text, or the file and the entry.
    """
    if not (arguments.watch or arguments.watch_file):
        return ()
    from tui_debugger.session.watchpoints import watchpoints_from

    return watchpoints_from(arguments.watch, arguments.watch_file)


def enabled_watchpoints(arguments: argparse.Namespace) -> list[Watchpoint]:
    """The enabled ones of them, each once, numbered from 1.

    Raises:
        BadWatchpointError: naming the text, or the file and the entry.
        TdbgError: every one of them is disabled.
    """
    given = given_watchpoints(arguments)
    enabled = dict.fromkeys(watch for watch in given if watch.enabled)
    if given and not enabled:
        raise _disabled()
    return [dataclasses.replace(watch, id=number) for number, watch in enumerate(enabled, 1)]


def _disabled() -> TdbgError:
    return TdbgError(
        "every given watchpoint is disabled", where="--watch-file", hint="enable one, or give one with --watch"
    )


MAP_ROWS: Final = 40
"""Without --depth the scopes of a map are opened as long as there are no more rows than this."""
MAP_NAMES: Final = 40
"""Cells that are left for names at the end of its lines."""


def add_map_rows(parser: argparse.ArgumentParser) -> None:
    """Adds what chooses the rows of a map of scopes and nodes."""
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--depth",
        type=whole("a number of levels from 1 to 99", 1, 99),
        metavar="N",
        help=f"open scopes down to level N (default: as far as there are {MAP_ROWS} rows)",
    )
    rows.add_argument("--nodes", action="store_true", help="a row per node, in execution order")
    parser.add_argument("--bad", action="store_true", help="only rows in which something was found")


def add_watchpoints(
    session: Session,
    given: Sequence[Watchpoint],
    pairs: Sequence[Pair] = (),
    progress: ProgressFn | None = None,
    *,
    recommended: bool,
) -> frozenset[int]:
    """Fills the list of a session; returns the ids of the given ones.

    Args:
        session: the session.
        given: what the user asked for.
        pairs: what is to be judged: its nodes decide what is recommended.
        progress: told how far that is.
        recommended: add what is recommended.

    Raises:
        TdbgError: no enabled watchpoint is left.
    """
    # A disabled one must not keep the same rule, enabled elsewhere, from being added.
    session.watchpoints.add_missing(watchpoint for watchpoint in given if watchpoint.enabled)
    rules = frozenset(watchpoint.id for watchpoint in session.watchpoints.items())
    if recommended:
        if session.recommended_changes:
            note("the recommended watchpoints are those of the configuration (see tdbg config)")
        _ = session.add_recommended() if progress is None else session.add_recommended(pairs, progress)
    if not len(session.watchpoints):
        if not recommended:
            raise _disabled()
        why = "".join(f". {limit}" for limit in session.info.limits[:1])
        if parts := session.unreadable():  # not that there is nothing to watch: it is not known
            from tui_debugger.check.results import advice_for, parts_text

            raise TdbgError(
                f"nothing can be judged: {parts_text(parts)}{why}", where=session.info.path, hint=advice_for(parts)
            )
        raise TdbgError(
            f"no watchpoint is recommended for this dump: it has no tensors to watch{why}",
            where=session.info.path,
            hint="`tdbg ls` lists the nodes",
        )
    return rules


def add_config(parser: argparse._ActionsContainer) -> None:
    """``--no-config``, of every command that looks into the configuration."""
    parser.add_argument("--no-config", action="store_true", help="leave the configuration file out (see tdbg config)")


def add_appearance(parser: argparse.ArgumentParser) -> None:
    """The options of the screen that the configuration has, too."""
    from tui_debugger.config import THEMES

    parser.add_argument("--theme", choices=THEMES, metavar="NAME", help=f"colours: {', '.join(THEMES)}")
    mouse = parser.add_mutually_exclusive_group()
    mouse.add_argument(
        "--no-mouse",
        dest="mouse",
        action="store_false",
        default=None,
        help="leave the mouse to the terminal's own selection",
    )
    mouse.add_argument(
        "--mouse", action="store_true", default=None, help="use the mouse, although the configuration does not"
    )


def configured(arguments: argparse.Namespace) -> Config:
    """Returns the configuration that a command works with, unless --no-config leaves it out.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    from tui_debugger.config import Config, config_path, load

    return Config() if arguments.no_config else load(config_path())


def screen_config(arguments: argparse.Namespace) -> Config:
    """Returns the same with what the options of the screen say.

    Raises:
        ConfigError: see ``configured``.
    """
    config = configured(arguments)
    theme = config.theme if arguments.theme is None else arguments.theme
    return dataclasses.replace(config, theme=theme, mouse=config.mouse if arguments.mouse is None else arguments.mouse)


def conditions_of(texts: Sequence[str]) -> frozenset[str]:
    """The ids of conditions in texts like ``TO,TZ``.

    Raises:
        BadWatchpointError: no condition is called so.
    """
    from tui_debugger.watch.condition_table import by_abbr

    words = [word for text in texts for word in text.split(",")]
    try:
        return frozenset(by_abbr(word).id for word in words)
    except BadWatchpointError as error:
        raise BadWatchpointError(error.what, where=f"--fail-on {','.join(texts)}", hint=error.hint) from None


_PART = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
Span = tuple[int, int]
"""First and last number, both included."""


def add_command(
    commands: _SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    description: str,
    epilog: str | None = None,
    *,
    without_path: str = "",
    several: bool = False,
    **more: Any,
) -> argparse.ArgumentParser:
    """A command on a dump; texts of several lines are laid out already.

    Args:
        commands: where to.
        name: what people type.
        summary: a line for the list of commands.
        description: for its own help.
        epilog: what stands below the options there.
        without_path: what it does without PATH; empty where it needs one.
        several: it takes more directories with ranks of the same run.
        more: what argparse takes else.
    """
    laid_out = epilog is not None or "\n" in description
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter if laid_out else argparse.HelpFormatter,
        **more,
    )
    says = "where the dump is" + (f" (default: {without_path})" if without_path else "")
    parser.add_argument("path", type=given_path, metavar="PATH", help=says, nargs="?" if without_path else None)
    if several:
        parser.add_argument(
            "more",
            type=given_path,
            metavar="MORE",
            nargs="*",
            help="where more ranks of the same run are, of other hosts",
        )
    return parser


def working_directory() -> Path:
    """Returns where commands without PATH look.

    Raises:
        TdbgError: it was removed.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise nowhere(error) from None


def given_path(text: str) -> Path:
    """Returns a path that the user named; an empty text, such as of a variable that is not set, is refused."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: . is the working directory")
    return Path(text)


def add_node(parser: argparse.ArgumentParser, without: str = "", nargs: str | None = None) -> None:
    """The argument that names a node, or one of its tensors; with what it means ``without`` a slot all is said."""
    says = (
        f"as for tdbg show; without a slot {without}"
        if without
        else "id of a node, the end of it, or any part that only one node has; :0 is output 0, :in1 input 1, :in all "
        "inputs; also :out, :param; #1 at the end is the first of several runs within a step (default: the newest)"
    )
    parser.add_argument("node", nargs=nargs, metavar="NODE[:slot]", help=says)


def add_maps(parser: argparse._ActionsContainer) -> None:
    """Adds the options that pair names, steps and ranks of two runs: ``--map-name``, ``--map-step``, ``--map-rank``."""
    parser.add_argument(
        "--map-name",
        action="append",
        default=[],
        metavar="s/OLD/NEW/",
        help="nodes of the first run by the names they have in the second (may be repeated)",
    )
    for word, more in (("step", ""), ("rank", "; 0:0 and 0:1: what ranks 0 and 1 share")):
        parser.add_argument(
            f"--map-{word}",
            action="append",
            default=[],
            type=number_pair,
            metavar="A:B",
            help=f"{word}s that are the same one (may be repeated){more}",
        )


def add_comparison(parser: argparse._ActionsContainer) -> None:
    """Adds the options of comparing two runs: what is paired with what, and which differences are ignored."""
    add_maps(parser)
    parser.add_argument(
        "--dims",
        action="append",
        default=[],
        metavar="NODES=HOW",
        help="how ranks share tensors of some nodes: replicated, sum, mean, flat, the dimension that is cut, 1:zigzag, "
        "or 0:3 of three fused weights (may be repeated; default: found out by values)",
    )
    parser.add_argument(
        "--noise",
        type=Path,
        metavar="DIR",
        help="a healthy repeat of the first run: up to 3 times as much as these two differ by is no difference",
    )
    parser.add_argument(
        "--map-file",
        type=Path,
        metavar="FILE",
        help='JSON: {"nodes": {A: B}, "names": [...], "steps": {}, "ranks": {}, "dims": {}}',
    )
    parser.add_argument(
        "--type-tolerance",
        action="append",
        default=[],
        type=_type_tolerance,
        metavar="TYPE=R,A",
        help="relative and absolute tolerance for one type, for example bfloat16=1e-2,1e-3 (may be repeated)",
    )


def _type_tolerance(text: str) -> tuple[str, float, float]:
    """Parses ``bfloat16=1e-2,1e-3``: type, relative and absolute tolerance."""
    from tui_debugger.stats.dtypes import canonical_name  # needs NumPy

    name, equals, values = text.partition("=")
    relative, _, absolute = values.partition(",")
    try:
        found = canonical_name(name), float(relative), float(absolute or 0)
    except ValueError:
        found = "", 0.0, 0.0
    if not (equals and found[0] and 0 <= found[1] < float("inf") and 0 <= found[2] < float("inf")):
        msg = f"{text!r} is not a type with tolerances such as bfloat16=1e-2,1e-3"
        raise argparse.ArgumentTypeError(msg)
    return found


def at_least_zero(most: float) -> Callable[[str], float]:
    """A parser of numbers from 0 to ``most``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (0 <= value <= most and value < math.inf):
            msg = f"{text!r} is not a number from 0 to {most:g}" if most < math.inf else f"{text!r} is not 0 or more"
            raise argparse.ArgumentTypeError(msg)
        return value

    return parse


def number_pair(text: str) -> tuple[int, int]:
    """Parses ``0:1``."""
    one, colon, other = text.partition(":")
    if not colon or not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in (one, other)):
        msg = f"{text!r} is not two numbers such as 0:1"
        raise argparse.ArgumentTypeError(msg)
    return int(one), int(other)


def add_limit(parser: argparse.ArgumentParser, what: str) -> None:
    """``--limit``: rows of tables on stdout."""
    parser.add_argument(
        "--limit",
        type=whole("a number of rows such as 20, or 0 for all"),
        default=20,
        metavar="N",
        help=f"{what} (default: 20; 0: all of them)",
    )


def add_top(parser: argparse.ArgumentParser, what: str, most: int) -> None:
    """``--top``: how many of something are listed: see ``output.print_first``."""
    parser.add_argument(
        "--top",
        type=whole(f"a number of {what} such as 20, or 0 for all"),
        default=most,
        metavar="K",
        help=f"{what} that are listed (default: {most}; 0: all)",
    )


def add_where(
    parser: argparse.ArgumentParser,
    rank: str = "ranks, for example 0,4-6 (default: all)",
    step: str = "steps, for example 0,4-6 (default: all)",
) -> None:
    """The options of every headless command: rank, step, nodes, graph, JSON; with help where a command takes fewer."""
    where = parser.add_argument_group("which part of the dump")
    where.add_argument("--rank", type=spans, metavar="N", help=rank)
    where.add_argument("--step", type=spans, metavar="N", help=step)
    where.add_argument("--filter", metavar="REGEX", help="only nodes whose name matches")
    where.add_argument("--graph", metavar="NAME", help="only nodes of this graph, by name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of a table")
    add_opening(parser)
    add_config(parser)


def add_opening(parser: argparse.ArgumentParser) -> None:
    """The options of every command that opens a dump: its index, and what under PATH does not count."""
    parser.add_argument(
        "--no-cache", action="store_true", help="neither use nor fill the index of statistics (see tdbg config)"
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="GLOB",
        help="leave out files and directories such as '*.bak' or 'old/*.pt'; the verdict says so (may be repeated)",
    )
    parser.add_argument(
        "--no-default-ignore",
        action="store_true",
        help="also look into installed environments, caches and the stores of version control",
    )
    add_redirects(parser)


def add_redirects(parser: argparse.ArgumentParser) -> None:
    """The option of every command that a URL can be given to; ``main`` does what it says."""
    parser.add_argument(
        "--redirect-to",
        action="append",
        default=[],
        metavar="HOST",
        help="let the web server of a URL redirect to this other host, or HOST:PORT (may be repeated)",
    )


def begin_opening(arguments: argparse.Namespace, config: Config) -> None:
    """Leaves out what the command line or the configuration ignores."""
    from tui_debugger import opener

    opener.hide((*config.ignore, *getattr(arguments, "ignore", ())))


def add_work(parser: argparse.ArgumentParser) -> None:
    """The options of every command that measures tensors: who does it."""
    work = parser.add_argument_group("who does the work")
    work.add_argument(
        "--jobs",
        type=whole("a number of threads from 1 to 999", 1, 999),
        metavar="N",
        help="measure with N threads; 1 starts none (default: one per core, up to 8)",
    )
    work.add_argument(
        "--executor", metavar="WHERE", help="measure on the dask cluster whose scheduler this is: dask:tcp://HOST:PORT"
    )


def whole(what: str, least: int = 0, most: int = 10**9 - 1) -> Callable[[str], int]:
    """A parser of whole numbers within bounds; ``what`` ends the sentence that refuses another text."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
            msg = f"{text!r} is not {what}"
            raise argparse.ArgumentTypeError(msg)
        return int(text)

    return parse


def spans(text: str) -> tuple[Span, ...]:
    """Parses ``0,4-6``."""
    found = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            msg = f"{text!r} is not a list of numbers such as 0,4-6"
            raise argparse.ArgumentTypeError(msg)
        found.append((int(match[1]), int(match[2] or match[1])))
    return tuple(found)


def chosen(wanted: Sequence[Span] | None, there: Iterable[int], word: str) -> list[int]:
    """The numbers of ``there`` that are wanted, ascending.

    Raises:
        TdbgError: a number, or a whole span, that is not there: a check of nothing must not look clean.
    """
    numbers = sorted(set(there))
    if wanted is None:
        return numbers
    for first, last in wanted:
        if not any(first <= number <= last for number in numbers):
            asked = f"{first}" if first == last else f"{first}-{last}"
            raise TdbgError(
                f"{word} {asked} is not in this dump",
                where=f"--{word} {asked}",
                hint=f"there is {word} {brief(numbers)}" if numbers else f"no {word} has data",
            )
    return [number for number in numbers if any(first <= number <= last for first, last in wanted)]


def open_session(path: Path, arguments: argparse.Namespace, progress: ProgressFn, *, is_text: bool = True) -> Session:
    """A session on a path, restricted to the chosen nodes; it is closed when the command ends.

    Of which part of a run it is, is the first line on stdout, where the command writes a text there (``is_text``).

    Raises:
        TdbgError: no dump, a graph that is not there, a bad regular expression, or no node left.
    """
    from tui_debugger.check.results import AskedPart
    from tui_debugger.graph.search import NodeQuery
    from tui_debugger.session.session import open_dump

    config = configured(arguments)
    begin_opening(arguments, config)
    session = open_dump(
        path,
        workers=workers_of(arguments),
        remember=not arguments.no_cache,
        more=getattr(arguments, "more", ()),
        enter_environments=arguments.no_default_ignore,
    )
    arguments.at_exit.callback(session.close)
    for wrong in session.settings:
        note(wrong)
    is_text = is_text and not any(getattr(arguments, name, False) for name in ("json", "csv"))
    say_scope(session.scope.text, on_stdout=is_text)
    session.asked = AskedPart(arguments.rank, arguments.step)
    session.recommended_changes = config.recommended
    session.open(progress, tree=False)
    session.take_inventory(progress)
    _refuse_unlisted(session, arguments.rank)
    if arguments.filter is None and arguments.graph is None:
        return session
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    names = sorted({info.name for rank in ranks for info in session.nodes(rank).graphs})
    graphs = [name for name in names if arguments.graph in (None, name, re.sub(r".*\D", "", name))]
    if not graphs:
        raise TdbgError(
            f"no graph is called {arguments.graph!r}",
            where=f"--graph {arguments.graph}",
            hint=f"there is {', '.join(names)}",
        )
    wanted = frozenset(graphs if arguments.graph is not None else ())
    session.restrict(NodeQuery(text=arguments.filter or "", regex=True, case_sensitive=True, graphs=wanted))
    if not any(session.in_scope(rank).any() for rank in ranks):
        raise TdbgError(
            "no node matches",
            where=" ".join(f"--{name} {value}" for name in ("filter", "graph") if (value := getattr(arguments, name))),
            hint="`tdbg ls` lists the nodes",
        )
    return session


def _refuse_unlisted(session: Session, wanted: Sequence[Span] | None) -> None:
    """A rank that was asked for, and of which nothing can be listed, is something else than one that is not there.

    Raises:
        TdbgError: there is such a rank, and no other one in its span.
    """
    for first, last in wanted or ():
        if any(first <= rank <= last and session.steps(rank) for rank in session.ranks()):
            continue
        parts = [part for part in session.unreadable() if part.rank is not None and first <= part.rank <= last]
        if parts:
            raise TdbgError(
                f"no step of rank {parts[0].rank} can be listed: {parts[0].where} ({parts[0].why})",
                where=f"{session.info.path}/{parts[0].where}",
                hint="see that it may be read and that its copy is complete",
            )


def workers_of(arguments: argparse.Namespace) -> MeasureWorkers:
    """Tells who measures, by --jobs and --executor.

    Raises:
        TdbgError: both are given, or the cluster cannot be used.
    """
    from tui_debugger.stats.workers import MeasureWorkers

    if "executor" not in arguments:  # a command that only lists
        return MeasureWorkers(jobs=1)
    if arguments.executor is None:
        return MeasureWorkers(arguments.jobs)
    if arguments.jobs is not None:
        raise TdbgError(
            "--jobs is about threads of this program",
            where=f"--jobs {arguments.jobs} --executor {arguments.executor}",
            hint="the cluster has as many workers as it has: leave --jobs out",
        )
    from tui_debugger.stats.cluster import executor_of

    return MeasureWorkers(executor=executor_of(arguments.executor))


def several_graphs(session: Session) -> bool:
    """Tells whether any rank has several graphs: the name of a node may then be that of two."""
    return bool(session.graph_names())


def pairs_of(session: Session, arguments: argparse.Namespace) -> tuple[Pair, ...]:
    """The (rank, step) pairs that --rank and --step choose, by step then rank.

    Raises:
        TdbgError: a rank or step that was not dumped, or a step of a rank both of which are named by their numbers.
    """
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    steps = chosen(arguments.step, (step for rank in ranks for step in session.steps(rank)), "step")
    _note_missing(arguments.rank, ranks, "rank")
    _note_missing(arguments.step, steps, "step")
    for step in _single(arguments.step):
        _look_for(step, {rank: session.steps(rank) for rank in ranks}, _single(arguments.rank))
    return session.pairs(ranks, steps)


def _single(wanted: Sequence[Span] | None) -> list[int]:
    """The numbers that are named one by one, not as part of a span."""
    return [first for first, last in wanted or () if first == last]


def _look_for(step: int, steps: Mapping[int, Sequence[int]], named: Collection[int]) -> None:
    """Says which ranks lack a step that was asked for, for other ranks have it.

    Raises:
        TdbgError: one of them was named, too.
    """
    without = [rank for rank, there in steps.items() if step not in there]
    for rank in without:
        if rank in named:
            raise TdbgError(
                f"rank {rank} has no step {step}",
                where=f"--rank {rank} --step {step}",
                hint=f"it has step {brief(steps[rank])}" if steps[rank] else "no step of it has data",
            )
    if without:
        note(f"step {step} is not in this dump for rank {brief(without)}: looking at the other ranks")


def _note_missing(wanted: Sequence[Span] | None, found: Sequence[int], word: str) -> None:
    """Says on stderr what a span names beyond both ends of what there is. Gaps are usual: not every step is dumped."""
    for first, last in wanted or ():
        inside = [number for number in found if first <= number <= last]
        beyond = [(first, inside[0] - 1), (inside[-1] + 1, last)]
        missing = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in beyond if low <= high)
        if missing:
            note(f"{word} {missing} is not in this dump: looking at {word} {brief(inside)}")
