"""Sources of tensors: ``base`` has the Source protocol, ``registry`` opens a path, every layout is a package here."""

from tui_debugger.sources.registry import open_source

__all__ = ["open_source"]
