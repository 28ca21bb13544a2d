"""The façade that every front end calls; offline and live alike."""

from tui_debugger.check.types import CheckResult as CheckResult
from tui_debugger.check.types import TensorRow as TensorRow
from tui_debugger.session.session import Session as Session
