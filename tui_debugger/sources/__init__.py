"""Where tensors come from. ``base`` has the Source protocol; every layout is a module beside it."""

from tui_debugger.sources.registry import open_source

__all__ = ["open_source"]
