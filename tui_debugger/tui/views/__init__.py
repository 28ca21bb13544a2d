"""What one opens from a tensor or a hit: views that fill the screen, one folder each, and what they share."""
