"""Node tables, categories, search, stacks and the graph file reader."""
