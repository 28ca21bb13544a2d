"""Numbers of tensors: measuring, merging, comparing, storing. numpy only; nothing about any particular tool's files."""
