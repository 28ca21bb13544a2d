"""Dialogs that open above the panes: prompts, forms, lists, help. Each takes plain data and returns a typed result."""
