"""The memory of tdbg between runs: an index in the user's cache directory, never in a dump.

What is in it: statistics of tensors (how many NaN, the smallest and the largest value, means ...), the element types
and shapes that they belong to, names, sizes and modification times of files, and digests. What never is: the values of
a tensor. Without an index everything works as well, and reads the files again.
"""

from tui_debugger.cache.store import Cleared, DiskCache, KindInfo, StoreInfo, default_store

__all__ = ["Cleared", "DiskCache", "KindInfo", "StoreInfo", "default_store"]
