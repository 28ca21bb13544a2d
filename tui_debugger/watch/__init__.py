"""Watch conditions: their table, their text form, their evaluation, and the recommended watchpoints."""
