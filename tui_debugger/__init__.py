"""tdbg: a terminal debugger for the values of deep-learning training.

One way through the house (imports point one way, checked in CI)::

    dump directory ─┐
    memory (tests) ─┴─► sources ─► session ─► front ends: tui/, cli/
                                      │
                                      ▼
                          analysis/ (numpy only)   graph/ (node table, stacks)

``model`` holds the frozen dataclasses that cross a seam, ``errors`` the one exception tree.
"""

__version__ = "0.1.0"
