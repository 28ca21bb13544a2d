"""Views that open from a tensor or a hit: they that fill the screen, a file each, and what they share."""
