"""The tensor view: the elements of one tensor, as numbers and as a picture."""
