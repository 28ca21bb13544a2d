"""How values read to people: numbers, hits, watchpoints, names. The screen and the commands say the same words."""
