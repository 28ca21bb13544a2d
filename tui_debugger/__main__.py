"""``python -m tui_debugger`` is ``tdbg``."""

import sys

from tui_debugger.cli.main import main

sys.exit(main())
