"""What the views of a tensor ask of a session, and so do their commands."""
