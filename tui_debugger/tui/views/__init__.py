"""Views that open from a tensor or a hit, a file each, and the parts that they share."""
