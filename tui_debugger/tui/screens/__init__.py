"""Screens that open above the panes: prompts, forms, values, help. Each takes plain data and returns a typed result."""
