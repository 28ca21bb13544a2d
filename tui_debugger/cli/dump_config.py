"""``tdbg dump-config``: writes or checks a recorder's configuration, and estimates the size of the dump."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.cli.options import Commands, Span, add_redirects, flag, repeated, spans, whole
from tui_debugger.cli.output import Answer, note, outcome_of, print_exit, print_table, print_text, runner
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.opener import METADATA_LIMIT, read_regular, why_not
from tui_debugger.text.documents import Row, row_of, rows_of
from tui_debugger.text.numbers import plural
from tui_debugger.text.writer import Meaning, meant, write_data, write_errors, write_lines

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.recording import mindspore
    from tui_debugger.recording.disk import Estimate, StepSize
    from tui_debugger.recording.json_lines import Parsed
    from tui_debugger.recording.keys import ConfigurationReport, Message, Variable
    from tui_debugger.session import Session

DESCRIPTION = """\
Writes the configuration of a dump: data_dump.json for MindSpore, or
config.json for msprobe. Asks for what no option says, on a terminal; takes
defaults elsewhere. Says which environment variables to export, and how much
disk the dump will take.
--check FILE explains every key of a file, and what this version would refuse,
change or silently ignore.
"""
EPILOG = """\
exit codes:
  0    the file is written, or right
  1    --check: there are mistakes in it
  2    it cannot be read or written, or an option is wrong
"""
_SIDES: Final = ("both", "input", "output")
_SAVES: Final = ("tensor", "statistic", "full")
_MODES: Final = {"all": 0, "kernels": 1, "set_dump": 2}
_MOST_DEVICE: Final = 4095


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "dump-config",
        help="write or check the configuration of a dump (MindSpore, msprobe)",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="explain and check a file instead of writing one (-: stdin)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where it is written (default: the usual name; -: stdout)"
    )
    flag(parser, "--force", "overwrite a file that is there")
    flag(parser, "--yes", "ask nothing: take the defaults where no option is given")
    flag(parser, "--json", "one JSON document on stdout instead of text")
    _add_reader(parser)
    _add_content(parser)
    _add_msprobe(parser)
    _add_size(parser)
    parser.set_defaults(run=runner("dump-config", _answer), path=None)


def _add_reader(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("who records")
    group.add_argument(
        "--mindspore",
        metavar="VERSION",
        help="version of MindSpore, such as 2.3 (default: that of --like, of the file, or what is installed)",
    )
    group.add_argument("--device", choices=("cpu", "gpu", "ascend"), help="what trains (default: that of --like)")
    group.add_argument("--jit-level", choices=("O0", "O1", "O2"), help="how graphs are compiled on Ascend")
    group.add_argument(
        "--like", type=Path, metavar="DIR", help="a dump that is there: its version, its device, the size of its steps"
    )
    add_redirects(parser)
    flag(group, "--msprobe", "a config.json for msprobe")
    group.add_argument("--framework", choices=("pytorch", "mindspore"), help="who is recorded by msprobe")


def _add_content(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is recorded")
    group.add_argument("--path", dest="dump_path", metavar="DIR", help="where the dump goes; an absolute path")
    group.add_argument(
        "--iteration", metavar="TEXT", help="steps, from 0, such as '0|5-8|100-120', or all (default: 0)"
    )
    group.add_argument("--save", choices=_SAVES, help="values, statistics or both (default: tensor)")
    group.add_argument("--input-output", choices=_SIDES, help="inputs or outputs of operators (default: both)")
    group.add_argument("--net-name", metavar="NAME", help="name of the network, a directory of the dump (default: Net)")
    group.add_argument(
        "--dump-mode", choices=tuple(_MODES), help="all operators, those of --kernel, or those marked by set_dump()"
    )
    repeated(group, "--kernel", "NAME", "an operator that is recorded (may be repeated)")
    group.add_argument("--support-device", type=spans, metavar="N", help="devices that record (default: 0-7)")
    repeated(group, "--statistic-category", "NAME", "a statistic (may be repeated)")
    group.add_argument(
        "--op-debug-mode", type=whole("0 to 4", 0, 4), metavar="N", help="0: everything; 3: overflows; 4: exceptions"
    )
    flag(group, "--asynchronous", "on Ascend: dump without waiting for operators")
    group.add_argument("--file-format", choices=("npy", "bin"), help="of an asynchronous dump (default: npy)")
    group.add_argument(
        "--sample-num", type=whole("a number of elements from 1", 1), metavar="N", help="first elements of tensors only"
    )


def _add_msprobe(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("msprobe")
    group.add_argument("--task", metavar="NAME", help="statistics, tensor, structure ... (default: as --save)")
    group.add_argument("--level", metavar="NAME", help="L0 modules, L1 calls, mix both, L2, debug (default: L1)")
    group.add_argument("--rank", type=spans, metavar="N", help="ranks that record, for example 0,4-6 (default: all)")
    group.add_argument("--scope", nargs=2, metavar=("FIRST", "LAST"), help="the calls from one to another only")
    group.add_argument("--summary-mode", metavar="NAME", help="statistics, md5 or xor (default: statistics)")


def _add_size(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how large it will be")
    group.add_argument("--parameters", metavar="N", help="parameters that one rank holds, such as 7B")
    group.add_argument("--activations", metavar="BYTES", help="bytes of the activations of a step and rank, such as 2G")
    group.add_argument("--ranks", type=whole("a number from 1", 1), metavar="N", help="how many ranks record")
    group.add_argument("--steps", type=whole("a number from 1", 1), metavar="N", help="how many steps are recorded")


def _answer(arguments: Namespace, _: ProgressFn) -> Answer:
    return _check(arguments) if arguments.check is not None else _write(arguments)


# -- who will read it --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TargetProgram:
    """The program that will read the file, and the source of this knowledge."""

    target: mindspore.Target
    known_from: str


def _reader(arguments: Namespace, beside: Path | None = None) -> _TargetProgram:
    """Finds version and device from the options, a dump, or installed packages.

    ``beside`` is the directory of a checked file: a dump around it tells version and device.
    """
    from tui_debugger.recording import mindspore

    recorded = trained = known_from = ""
    if arguments.like is not None:
        info = _session(arguments).info
        recorded = info.framework_version if info.layout.startswith("MindSpore") else ""
        trained, known_from = info.device, str(arguments.like)
    elif beside is not None:
        from tui_debugger.sources.mindspore.source import METADATA_DIRECTORY, read_metadata

        if beside.name == METADATA_DIRECTORY:
            metadata = read_metadata(beside.parent)
            recorded, trained, known_from = metadata.version, metadata.device, str(beside.parent)
    version = _known(recorded)
    if arguments.mindspore is not None:
        version, known_from = mindspore.version_of(arguments.mindspore), "--mindspore"
    elif version is not None:
        known_from = f"{known_from} was written by {recorded}"
    elif (version := _known(installed := next(_installed(), ""))) is not None:
        known_from = f"MindSpore {installed} is installed"
    else:
        known_from = ""
    device = arguments.device or next((each for each in mindspore.DEVICES if each == trained.lower()), None)
    return _TargetProgram(mindspore.Target(version, device, arguments.jit_level), known_from)


def _known(text: str) -> mindspore.Version | None:
    """Parses a version that no user typed; None if it is no version."""
    from tui_debugger.recording import mindspore

    try:
        return mindspore.version_of(text)
    except TdbgError:
        return None


def _session(arguments: Namespace) -> Session:
    """The dump that ``--like`` names; opened once, closed when the command ends."""
    session: Session | None = getattr(arguments, "session", None)
    if session is None:
        from tui_debugger.session.session import open_dump

        session = arguments.session = open_dump(arguments.like, remember=False)
        arguments.at_exit.callback(session.close)
        session.open()
    return session


def _installed() -> Iterator[str]:
    """Yields the versions of MindSpore that this Python could import, without importing any."""
    from contextlib import suppress
    from importlib import metadata

    for name in ("mindspore", "mindspore-gpu", "mindspore-ascend"):
        with suppress(metadata.PackageNotFoundError):
            yield metadata.version(name)


# -- --check ---------------------------------------------------------------------------------------


def _check(arguments: Namespace) -> Answer:
    from tui_debugger.recording import mindspore_check, msprobe
    from tui_debugger.recording.json_lines import parse

    path: Path = arguments.check
    arguments.path = path
    parsed = parse(_content(path))
    absolute = os.path.abspath(path)  # noqa: PTH100 - a link keeps its name, and a file need not be there
    if arguments.msprobe or msprobe.is_msprobe(parsed):
        report, known_from = msprobe.check(parsed, arguments.framework, absolute), ""
    else:
        reader = _reader(arguments, Path(absolute).parent)
        report, known_from = mindspore_check.check(parsed, reader.target, absolute), reader.known_from
        if not known_from:
            note("no version of MindSpore is known: the rules are those of the newest one; --mindspore names another")
    return Answer(
        code=outcome_of(finding=report.mistakes),
        document=lambda: _check_document(report, known_from),
        show=lambda code: _print_check(path, report, known_from, code),
    )


def _content(path: Path) -> bytes:
    """Reads the file. Raises TdbgError if it cannot be read or is too large for a configuration."""
    hint = "name a data_dump.json or a config.json"
    if str(path) == "-":
        data = sys.stdin.buffer.read(METADATA_LIMIT + 1)
        if len(data) > METADATA_LIMIT:
            raise TdbgError(f"more than {METADATA_LIMIT:,} bytes: no configuration is so large", where="-", hint=hint)
        return data
    try:
        return read_regular(path, METADATA_LIMIT)
    except (OSError, ValueError) as error:
        why = why_not(path, error if isinstance(error, OSError) else None, wanted="a file")
        raise TdbgError(f"the file cannot be read: {why}", where=str(path), hint=hint) from None


def _print_check(path: Path, report: ConfigurationReport, known_from: str, code: int) -> None:
    head = f"checked for {report.checked_as}" + (f" ({known_from})" if known_from else "")
    print_text(head)
    if report.keys:
        write_lines("")
        rows = [(str(each.line), _indented(each.key), each.value, each.meaning) for each in report.keys]
        print_table(_explained(), rows)
    for each in report.messages:
        write_lines("")
        print_text(*_message_lines(path, each), hang=9)
    _print_environment(report.environment)
    mistakes, notes = len(report.mistakes), len(report.notes)
    write_lines("")
    count = plural(mistakes, "mistake") if mistakes else "no mistakes"
    shown = meant(count, Meaning.FINDING if mistakes else Meaning.CLEAN)
    print_text((shown, f", {plural(notes, 'note')}"))
    print_exit(code, "mistakes in the file" if code else "the file is right")


def _indented(key: str) -> str:
    """The name of a key, indented by its depth."""
    *way, name = key.split(".")
    return "  " * len(way) + name


def _explained() -> list[Any]:
    from tui_debugger.text.tables import Column, Cut

    return [
        Column("line", right=True),
        Column("key", cut=Cut.FOLD, weight=3),
        Column("value", cut=Cut.END, weight=2),
        Column("what it does", cut=Cut.FOLD, weight=4),
    ]


def _message_lines(path: Path, message: Message) -> Iterator[Any]:
    from tui_debugger.recording.keys import Weight

    meaning = {Weight.REJECTED: Meaning.FINDING, Weight.CHANGED: Meaning.DOUBT}.get(message.weight)
    yield (
        meant(message.weight.value, meaning),
        f": {message.key}: {message.what}" if message.key else f": {message.what}",
    )
    yield f"  where: {path}" + (f", line {message.line}" if message.line else "")
    if message.hint:
        yield f"  do:    {message.hint}"


def _print_environment(variables: Sequence[Variable]) -> None:
    if not variables:
        return
    write_lines("", "before the training starts:", "")
    for each in variables:
        print_text(f"# {each.why}", hang=2)
        write_lines(_spelled(each))


def _spelled(variable: Variable) -> str:
    if variable.name.isupper():
        return f"export {variable.name}={variable.value or '...'}"
    return f"{variable.name} {variable.value}".strip()


def _check_document(report: ConfigurationReport, known_from: str) -> Row:
    return {
        "checked_as": report.checked_as,
        "known_from": known_from,
        "mistakes": len(report.mistakes),
        "messages": rows_of(report.messages, "weight", "key", "line", "what", "hint"),
        "keys": rows_of(report.keys, "key", "line", "value", "meaning"),
        "environment": rows_of(report.environment, "name", "value", "why"),
    }


# -- asking ----------------------------------------------------------------------------------------


class _Asker:
    """Asks on a terminal; elsewhere every answer is the default."""

    def __init__(self, *, asks: bool) -> None:
        """``asks``: whether a person at a terminal can be asked."""
        self.asks = asks

    def text(self, given: Any, words: str, default: str, read: Callable[[str], Any] = str) -> Any:
        """Returns the value of an option, else the answer of a person, else the default.

        ``read`` parses an answer, and raises TdbgError for a wrong one.
        """
        if given not in (None, "", [], ()):
            return given
        if not self.asks:
            return read(default)
        while True:
            write_errors(f"{words} [{default}]")
            line = sys.stdin.readline()
            if not line:
                raise CancelledError("no answer came: nothing is written", hint="--yes takes the defaults")
            try:
                return read(line.strip() or default)
            except TdbgError as error:
                write_errors(f"  {error.what}; {error.hint}" if error.hint else f"  {error.what}")

    def choice(self, given: Any, words: str, default: str, allowed: Sequence[str]) -> Any:
        """Asks for one of the allowed answers; the beginning of an answer is enough."""

        def read(text: str) -> str:
            fits = [each for each in allowed if each.lower().startswith(text.lower())]
            exact = [each for each in allowed if each.lower() == text.lower()]
            if len(exact or fits) != 1:
                raise TdbgError(f"{text!r} is no answer", hint="one of " + ", ".join(allowed))
            return (exact or fits)[0]

        return self.text(given, f"{words}: {', '.join(allowed)}?", default, read)


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A new file: its content, its checks, and the estimated size of the dump."""

    content: Row
    check: Callable[[Parsed, str], ConfigurationReport]
    known_from: str
    steps: int | None
    ranks: int
    sides: str
    saves: str
    chosen: bool
    sample: int


def _write(arguments: Namespace) -> Answer:
    from tui_debugger.recording.json_lines import parse
    from tui_debugger.session.export_files import fresh_text

    usual = "config.json" if arguments.msprobe else "data_dump.json"
    output = arguments.output or usual
    arguments.path = output
    if output != "-" and os.path.lexists(output) and not arguments.force:
        raise TdbgError("there is a file already", where=output, hint="--force overwrites it; -o names another one")
    asker = _Asker(asks=not (arguments.yes or arguments.json) and sys.stdin.isatty())
    plan = _msprobe_plan(arguments, asker) if arguments.msprobe else _mindspore_plan(arguments, asker)
    text = _laid_out(plan.content)
    absolute = os.path.abspath(output) if output != "-" else ""  # noqa: PTH100 - as it is named, links and all
    report = plan.check(parse(text.encode()), absolute)
    if report.mistakes:
        first, *others = report.mistakes
        more = f" (and {len(others)} more)" if others else ""
        raise TdbgError(f"{first.key}: {first.what}{more}", where=_options_for(first.key), hint=first.hint)
    size = _estimate(arguments, plan)
    if output != "-":
        with fresh_text(Path(output), None, force=arguments.force) as file:
            file.write(text)
    return Answer(
        document=lambda: _write_document(plan, report, text, size),
        show=lambda _: (
            _print_content(text, report, size) if output == "-" else _print_written(output, plan, report, size)
        ),
    )


def _print_content(text: str, report: ConfigurationReport, size: Estimate | None) -> None:
    write_data(text)
    note(f"made for {report.checked_as}" + ("" if size is None else f"; disk: {size.text}"))
    for variable in report.environment:
        note(f"{_spelled(variable)}  # {variable.why}")


def _laid_out(content: Row) -> str:
    """The text of the file: each key on its own line, lists on one line."""
    from tui_debugger.text.documents import to_json

    def lines(value: Row, indent: str) -> Iterator[str]:
        last = len(value) - 1
        for at, (key, each) in enumerate(value.items()):
            comma = "," if at < last else ""
            if isinstance(each, dict):
                yield f"{indent}{to_json(key)}: {{"
                yield from lines(each, indent + "    ")
                yield f"{indent}}}{comma}"
            else:
                yield f"{indent}{to_json(key)}: {to_json(each)}{comma}"

    return "\n".join(["{", *lines(content, "    "), "}"]) + "\n"


def _options_for(key: str) -> str:
    name = key.rsplit(".", 1)[-1]
    other = {"kernels": "kernel", "saved_data": "save", "list": "kernel", "step": "iteration", "dump_path": "path"}
    return "--" + other.get(name, name).replace("_", "-")


def _numbers(wanted: Sequence[Span]) -> list[int]:
    """Expands spans to numbers. Raises TdbgError for more numbers than a machine can have."""
    if max(last for _, last in wanted) > _MOST_DEVICE:
        hint = "such as 0-7"
        raise TdbgError(f"numbers of devices and ranks end at {_MOST_DEVICE}", where="--support-device", hint=hint)
    return sorted({number for first, last in wanted for number in range(first, last + 1)})


def _iteration(text: str) -> str:
    """Converts steps to MindSpore's notation; accepts commas and blanks."""
    plain = "|".join(part.strip() for part in text.replace(",", "|").split("|"))
    return "".join(plain.split()).lower() if plain.strip().lower() == "all" else "".join(plain.split())


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise TdbgError(f"{text!r} is no absolute path", where=f"--path {text}", hint="it begins with /")
    return text


def _mindspore_plan(arguments: Namespace, asker: _Asker) -> _NewFile:
    from tui_debugger.recording import mindspore, mindspore_check

    reader = _reader(arguments)
    target = reader.target
    version = target.version
    if version is None:
        newest = mindspore.number_text(mindspore.NEWEST)
        version = asker.text(None, "which version of MindSpore?", newest, mindspore.version_of)
    device = asker.choice(target.device, "what trains", "ascend", mindspore.DEVICES)
    level = target.jit_level
    if device == "ascend" and version >= (2, 3):
        level = asker.choice(level, "how are graphs compiled (jit_level)", "O0", mindspore.JIT_LEVELS)
    target = mindspore.Target(version, device, level)
    here = os.path.abspath("dump")  # noqa: PTH100 - the name that people see
    asks_path = asker.asks or arguments.dump_path is not None
    if not asks_path and not os.environ.get("MS_DIAGNOSTIC_DATA_PATH"):
        raise TdbgError("where the dump goes is not said", where="--path", hint="--path /absolute/directory")
    path = asker.text(arguments.dump_path, "where does the dump go?", here, _absolute) if asks_path else ""
    net = asker.text(arguments.net_name, "name of the network?", "Net")
    iteration = _iteration(asker.text(arguments.iteration, "which steps, from 0: such as 0|5-8, or all?", "0"))
    saves = arguments.save or "tensor"
    if device != "cpu" and version >= (1, 6):
        saves = asker.choice(arguments.save, "what of each tensor", "tensor", _SAVES)
    sides = asker.choice(arguments.input_output, "which tensors of an operator", "both", _SIDES)
    asynchronous = arguments.asynchronous or (device == "ascend" and level == "O2" and version >= (2, 3))
    mode = arguments.dump_mode or ("kernels" if arguments.kernel else "all")
    choices = mindspore.MindSporeChoices(
        path=path,
        net_name=net,
        iteration=iteration,
        dump_mode=_MODES[mode],
        kernels=arguments.kernel,
        input_output=_SIDES.index(sides),
        saved_data=saves,
        statistic_category=arguments.statistic_category,
        support_device=_numbers(arguments.support_device or ((0, 7),)),
        op_debug_mode=arguments.op_debug_mode or 0,
        file_format=arguments.file_format or "npy",
        asynchronous=asynchronous,
        sample_num=arguments.sample_num or 0,
    )
    content = mindspore.new(choices, target)
    return _NewFile(
        content,
        lambda parsed, file: mindspore_check.check(parsed, target, file),
        reader.known_from,
        arguments.steps or mindspore.steps_of(iteration),
        arguments.ranks or 1,
        sides,
        saves,
        mode != "all" or bool(choices.op_debug_mode),
        choices.sample_num,
    )


def _msprobe_plan(arguments: Namespace, asker: _Asker) -> _NewFile:
    from tui_debugger.recording import mindspore, msprobe

    framework = asker.choice(arguments.framework, "what trains", "pytorch", tuple(msprobe.FRAMEWORKS))
    task = arguments.task or ("tensor" if arguments.save in {"tensor", "full"} else None)
    task = asker.choice(task, "what of each tensor", "statistics", ("statistics", "tensor", "structure"))
    level = asker.choice(arguments.level, "what is one record", "L1", tuple(msprobe.LEVELS))
    path = asker.text(arguments.dump_path, "where does the dump go?", "./dump")
    iteration = _iteration(asker.text(arguments.iteration, "which steps, from 0: such as 0|5-8, or all?", "0"))
    sides = arguments.input_output or "both"
    steps = [] if iteration == "all" else [int(each) if each.isdigit() else each for each in iteration.split("|")]
    ranks = [first if first == last else f"{first}-{last}" for first, last in arguments.rank or ()]
    choices = msprobe.MsprobeChoices(
        task=task,
        level=level,
        dump_path=path,
        rank=ranks,
        step=steps,
        scope=arguments.scope or (),
        list=arguments.kernel,
        data_mode=("all",) if sides == "both" else (sides,),
        summary_mode=arguments.summary_mode or "statistics",
    )
    return _NewFile(
        msprobe.new(choices),
        lambda parsed, file: msprobe.check(parsed, framework, file),
        "",
        arguments.steps or mindspore.steps_of(iteration),
        arguments.ranks or (len(_numbers(arguments.rank)) if arguments.rank else 1),
        sides,
        {"statistics": "statistic", "tensor": "full"}.get(task, "statistic"),
        bool(arguments.kernel or arguments.scope),
        0,
    )


# -- how large it will be ----------------------------------------------------------------------------


def _estimate(arguments: Namespace, plan: _NewFile) -> Estimate | None:
    """Estimates the size of the dump on disk; None if neither a dump nor a number of parameters is named."""
    from tui_debugger.recording import disk

    step: StepSize
    if arguments.parameters is not None:
        activations = arguments.activations
        step = disk.from_model(
            disk.amount(arguments.parameters, "parameters"),
            None if activations is None else disk.amount(activations, "activations"),
            optimizer=not arguments.msprobe,
        )
    elif arguments.like is not None:
        step = _step_of(arguments)
    else:
        return None
    return disk.estimate(
        step,
        steps=plan.steps,
        ranks=plan.ranks,
        sides=plan.sides,
        saves=plan.saves,
        chosen=plan.chosen,
        sample={"elements": plan.sample} if plan.sample else None,
    )


def _step_of(arguments: Namespace) -> StepSize:
    """The largest of the first steps of a dump's first rank, by file sizes. Raises TdbgError if there is no tensor."""
    import numpy as np

    from tui_debugger.model import Side
    from tui_debugger.recording.disk import StepSize
    from tui_debugger.sources.base import TensorFlag

    session = _session(arguments)
    found: list[StepSize] = []
    for rank in session.ranks()[:1]:
        for step in session.steps(rank)[:8]:
            table = session.flow(rank).table(step)
            rows = np.flatnonzero((table.flags & int(TensorFlag.CONSTANT)) == 0)
            sizes = np.maximum(table.file_states(rows)[0], 0)
            is_input = table.side[rows] == int(Side.INPUT)
            inputs = int(is_input.sum())
            found.append(
                StepSize(
                    int(sizes[is_input].sum()),
                    int(sizes[~is_input].sum()),
                    (inputs, len(rows) - inputs),
                    f"{arguments.like} (rank {rank}, step {step})",
                )
            )
    if not found or not any(sum(each.tensors) for each in found):
        raise TdbgError(
            "the dump has no tensors to go by", where=f"--like {arguments.like}", hint="use --parameters 7B"
        )
    return max(found, key=lambda each: each.inputs + each.outputs)


# -- what is said ------------------------------------------------------------------------------------


def _print_written(output: str, plan: _NewFile, report: ConfigurationReport, size: Estimate | None) -> None:
    print_text(f"{output} is written, for {report.checked_as}" + (f" ({plan.known_from})" if plan.known_from else ""))
    for each in report.notes:
        print_text(f"  {each.key}: {each.what}" + (f" ({each.hint})" if each.hint else ""), hang=4)
    _print_environment(report.environment)
    write_lines("")
    if size is None:
        print_text("disk: not estimated; --parameters 7B or --like DUMP says how large it will be")
        return
    print_text(f"disk: {size.text}", "  this assumes:", *(f"  - {each}" for each in size.assumes), hang=4)


def _write_document(plan: _NewFile, report: ConfigurationReport, text: str, size: Estimate | None) -> Row:
    disk = None
    if size is not None:
        disk = {
            "total_bytes": size.total,
            "step_bytes": size.per_step,
            **row_of(size, "steps", "ranks", "assumes"),
        }
    return {
        "checked_as": report.checked_as,
        "known_from": plan.known_from,
        "text": text,
        "notes": rows_of(report.notes, "key", "what", "hint"),
        "environment": rows_of(report.environment, "name", "value", "why"),
        "disk": disk,
    }
