"""``python -m tui_debugger`` is ``tdbg``."""

import sys

from tui_debugger.cli.start import start

sys.exit(start())
