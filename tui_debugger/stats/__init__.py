"""Numbers of tensors: how they are measured, merged, compared and kept. Numpy only, no files of any particular tool."""
