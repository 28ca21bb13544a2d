"""Writing what the user asked for, and never into the dump.

``files`` makes files that appear whole or not at all, ``tensors`` fills them with tensors, ``graph`` with nodes, whose
rows come from ``graph_table``.
"""
