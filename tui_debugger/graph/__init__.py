"""Graphs: node tables, categories, search, stacks, the scope tree, and the reader of graph files."""
