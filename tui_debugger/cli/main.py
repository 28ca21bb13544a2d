"""The command line: one parser, one rule for exit codes, no traceback for a user's mistake."""

from __future__ import annotations

import argparse
import errno
import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any, NoReturn

from tui_debugger import __version__
from tui_debugger.cli.output import begin_notes, failure, nowhere, on_errors, print_json, unusable
from tui_debugger.errors import CancelledError, TdbgError, did_you_mean
from tui_debugger.mounts.refusals import allow_redirects
from tui_debugger.signals import as_ctrl_c
from tui_debugger.text.clean import clean
from tui_debugger.text.writer import abandon, open_streams, write_errors, write_traceback, write_usage


class CommandParser(argparse.ArgumentParser):
    """An argument parser; its subparsers are of the same class."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._given: list[str] = []
        self.commands: Mapping[str, argparse.ArgumentParser] = {}

    # Its overloads say no more than this, at the length of this file.
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    # The same as above.
    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuses unknown options and names the commands that have them; ``tdbg help`` searches for options."""
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown and getattr(arguments, "unknown_options_are_words", False):
            arguments.words += [word.partition("=")[0] for word in unknown]
        elif unknown:
            command = next(word for word in self._given if word in self.commands)
            self.commands[command].error(f"unrecognized arguments: {' '.join(unknown)}{_owners(unknown, command)}")
        return arguments

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), known) or f"one of {', '.join(known)}"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {hint}")

    def print_help(self, file: Any = None) -> None:
        """Prints the help with the usual options; ``-h all`` prints every option."""
        if "all" in self._given:
            super().print_help(file)
        else:
            hidden = self._hide_rare()
            super().print_help(file)
            self._print_message(f"\n{hidden} more options: {self.prog} -h all\n" if hidden else "", file or sys.stdout)

    def _hide_rare(self) -> int:
        self._mutually_exclusive_groups.clear()  # argparse cannot print a group with a hidden option
        rare = [action for action in self._actions if RARE.intersection(action.option_strings)]
        for action in rare:
            action.help = argparse.SUPPRESS
        return len(rare)

    def _in_words(self, message: str) -> str:
        """Explains each missing argument of argparse's message."""
        names = message.removeprefix("the following arguments are required: ")
        if names == message:
            return message
        missing = [each for each in self._actions if each.metavar in names.split(", ") and each.nargs != "*"]
        return " and ".join(
            f"{each.metavar} is missing: {(each.help or 'what to do').partition(';')[0]}" for each in missing
        )

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with code 2."""
        message = self._in_words(message)
        self._hide_rare()
        if "--json" in self._given:
            command = self.prog.split()[1:] or self._given
            wrong = TdbgError(
                message, where=" ".join(self._given), hint=f"`tdbg {command[0]} -h all` lists the options"
            )
            print_json(failure(command[0], None, wrong))
        super().error(clean(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        # All that argparse says goes through here: usage, help, version, errors.
        if message:
            write_usage(message, file or sys.stderr)


FINDING_COMMANDS = (
    "check",
    "audit",
    "origin",
    "explain",
    "report",
    "health",
    "ranks",
    "diff",
    "listen --no-screen",
    "dump-config --check",
    "config --cache verify",
)
"""The commands whose exit code 1 means a finding; other commands have no such code."""
EPILOG = f"""\
exit codes:
  0    done, or clean
  1    a finding, of these commands: {", ".join(FINDING_COMMANDS[:5])},
       {", ".join(FINDING_COMMANDS[5:])}
  2    cannot judge: nothing recognisable at the path, a wrong argument, nothing
       matched or could be compared, or tensors that could not be read
  130  interrupted

tdbg alone opens a page of dumps, tdbg COMMAND -h shows the usual options of a
command, tdbg help the manual.
"""
COMMANDS = {
    "open": "open_",
    "listen": "listen",
    **{name: name for name in ("check", "audit", "origin", "relations", "explain", "report", "health", "ranks")},
    **{name: name for name in ("trend", "ls")},
    **{name: name for name in ("show", "diff", "stat", "export", "convert")},
    "config": "config",
    "dump-config": "dump_config",
    **{name: name for name in ("demo", "help")},
}
"""The module of every command, in the order of the help."""
RARE = frozenset(
    f"--{word}"
    for word in (
        *("watch-file", "graph", "no-config", "no-cache", "ignore", "no-default-ignore", "redirect-to", "jobs"),
        *("executor", "mouse", "no-mouse", "source-map", "map-step", "map-rank", "map-file", "dims"),
        *("noise", "type-tolerance", "tolerance", "reshape", "by", "token-from", "new-token"),
        *("allow-unauthenticated", "tls-cert", "tls-key", "spool-limit", "log-hits", "all-hits", "allow-unreadable"),
        *("allow-unmatched", "timeout", "no-recommended", "no-state", "width", "height", "remarks", "max-hits"),
        *("full-paths", "no-count", "bins", "precision", "slice", "around", "hops", "scope", "no-marks", "yes", "like"),
        *("kernel", "support-device", "statistic-category", "op-debug-mode", "asynchronous", "file-format"),
        *("sample-num", "summary-mode", "parameters", "activations", "framework", "iteration", "input-output"),
        *("net-name", "dump-mode", "jit-level", "xlsx", "spread", "slot", "reverse", "device", "level"),
    )
)
"""The options that ``-h`` leaves out."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of the output left, as ``head`` does."""


class _Version(argparse.Action):
    """Prints the version, and whether statistics are computed by compiled code or by numpy."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tui_debugger.stats import kernel

        made = "compiled" if kernel.available() else "numpy"
        write_usage(f"tdbg {__version__} ({made})\n", sys.stdout)
        parser.exit()


def build_parser(command: str | None = None) -> CommandParser:
    """The parser with every command, or with only one: the other modules need not be loaded to run it."""
    parser = CommandParser(
        prog="tdbg",
        description="A terminal debugger for the values of deep-learning training.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser.commands = commands.choices
    for name, module in COMMANDS.items():
        if command in (None, name):
            import_module(f"tui_debugger.cli.{module}").register(commands)
    return parser


def _owners(unknown: Sequence[str], command: str) -> str:
    """Names similar options of this command, else the commands that have an option unknown to this one."""
    option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
    if not option:
        return ""
    parsers = build_parser().commands
    options = {
        name: [text for action in parser._actions for text in action.option_strings]  # noqa: SLF001 - as ``error`` does
        for name, parser in parsers.items()
    }
    owners = ", ".join(name for name, known in options.items() if option in known)
    meant = f"{option} is an option of {owners};" if owners else did_you_mean(option, options[command])
    return f"; {meant}{meant and ' '}`tdbg {command} -h all` lists those of {command}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; errors are printed on stderr as what, where, what to do."""
    open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a sign shows its number instead
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    with as_ctrl_c():
        return _answered(words)


def _answered(words: list[str]) -> int:
    """Runs a command; any failure becomes an exit code and a line."""
    try:
        return _run(words)
    except BrokenPipeError:
        abandon(sys.stdout)
        return BROKEN_PIPE
    except TdbgError as error:
        _write_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        write_errors("tdbg: interrupted")
        return CancelledError.exit_code
    except Exception as error:  # noqa: BLE001 - our own mistake, whatever it is, must not leave with Python's 1: that is a finding
        if isinstance(error, OSError):
            _write_error(_refused(error))
            return TdbgError.exit_code
        write_traceback()
        write_errors("tdbg: internal error: nothing was judged. Please report the lines above.")
        return TdbgError.exit_code


def _refused(error: OSError) -> TdbgError:
    if error.filename is not None:
        return unusable(error)
    if isinstance(error, FileNotFoundError):  # what the system says of the directory that relative paths begin at
        return nowhere(error)
    abandon(sys.stdout)  # no file of ours: stdout, such as on a full disk
    why = "stdout is closed" if error.errno == errno.EBADF else error.strerror
    what = f"the output could not be written: {why}"
    return TdbgError(what, where="stdout", hint="make room, or send it somewhere else")


def _run(words: list[str]) -> int:
    """Runs a command, or exits after printing help; flushes the output."""
    begin_notes()
    if not words:
        from tui_debugger.cli.open_ import on_terminal

        words = ["open"] if on_terminal() else words
    try:
        arguments = build_parser(words[0] if words and words[0] in COMMANDS else None).parse_args(words)
        allow_redirects(getattr(arguments, "redirect_to", ()))
        with ExitStack() as arguments.at_exit:  # what a command opens is closed with it, however it ends
            code = int(arguments.run(arguments))
    except SystemExit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _write_error(error: TdbgError) -> None:
    safe = TdbgError(clean(error.what), where=clean(error.where), hint="\n".join(map(clean, error.hint.split("\n"))))
    what, *others = f"tdbg: {safe}".split("\n")
    # A path stays whole, so that it can be copied.
    parts = [[line] if line.startswith("  where: ") else on_errors(line, hang=len("  do:    ")) for line in others]
    write_errors(*on_errors(what), *(line for part in parts for line in part))


if __name__ == "__main__":
    sys.exit(main())
