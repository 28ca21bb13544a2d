"""The memory of tdbg between runs: an index in the user's cache directory, never in a dump.

It holds statistics of tensors, their element types and shapes, names, sizes and times of files, and digests, but never
values of a tensor. Without an index everything works as well, and reads the files again.
"""

from tui_debugger.cache.store import Cleared, DiskCache, KindInfo, StoreInfo, default_store

__all__ = ["Cleared", "DiskCache", "KindInfo", "StoreInfo", "default_store"]
