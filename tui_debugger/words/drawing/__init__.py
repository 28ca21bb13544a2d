"""Pictures made of characters: curves, axes, heat maps; for the screen and the commands."""
