"""The start of the program, which imports nothing: Ctrl-C while Python loads files gives no traceback."""

import sys


def start() -> int:
    try:
        from tui_debugger.cli.main import main
        from tui_debugger.text.writer import guard_logs

        guard_logs()
        return main()
    except KeyboardInterrupt:
        if sys.stderr is not None:  # closed by who started us: print would take stdout
            print("tdbg: interrupted", file=sys.stderr)
        return 130
    finally:
        # Where Ctrl-C met a text that was executed, as methods of a dataclass are, ``python -m`` takes it for one that
        # nobody handled, and ends by the signal whatever the exit code is. The next text makes it forget.
        exec("")  # noqa: S102 - no text of anybody
