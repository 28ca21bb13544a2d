"""``tdbg demo``: the screen on a real dump that ships with the package."""

from __future__ import annotations

from argparse import Namespace

from tui_debugger.cli import open_
from tui_debugger.cli.options import Commands, flag
from tui_debugger.text.writer import write_lines

TRAINED_IN = "/data/dumps/run/A_nan_tensor_all"
"""The directory of the demo's training script: the stacks in the recorded graph name this path."""
RECORDED_IN = "/home/user/script"
"""The directory of the script in the recorded live session."""


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "demo",
        help="open a real dump that ships with tdbg",
        description="Opens a small real dump: a tiny transformer of MindSpore whose values go to NaN at "
        "step 3, or with --pytorch one of PyTorch. It is unpacked once, into the user's cache directory.",
    )
    open_.add_options(parser)
    which = parser.add_mutually_exclusive_group()
    flag(which, "--pytorch", "open a dump that msprobe recorded of PyTorch: NaN at step 1")
    flag(which, "--live", "play a recorded training instead, which is attached to and driven")
    flag(parser, "--unpack", "only unpack the dump, print where it lies, and leave")
    parser.set_defaults(run=_run)


def _run(arguments: Namespace) -> int:
    from tui_debugger.demo import DEMO, PYTORCH, demo_dump

    path = demo_dump(PYTORCH if arguments.pytorch else DEMO)
    if not arguments.pytorch:  # the training script travels with that dump, so that its lines can be shown
        arguments.source_map += [(TRAINED_IN, str(path)), (RECORDED_IN, str(path / "_run"))]
    if arguments.unpack:
        write_lines(str(path))
        return 0
    if arguments.live:
        from tui_debugger.cli.listen import run_demo

        return run_demo(arguments)
    if arguments.recommended is None:
        arguments.recommended = True
    return open_.run(path, arguments)
