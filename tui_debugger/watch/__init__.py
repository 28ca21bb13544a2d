"""Watch conditions: their table, watchpoints as text, how they are evaluated, and the recommended ones."""
