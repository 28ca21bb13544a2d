"""The tensor view: what one tensor holds, as numbers and as a picture."""
