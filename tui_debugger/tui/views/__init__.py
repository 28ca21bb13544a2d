"""What opens from a tensor or a hit: views that fill the screen, a file each, and what they share."""
