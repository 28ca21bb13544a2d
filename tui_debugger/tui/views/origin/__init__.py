"""The path upstream from a bad tensor to where it begins: ``lines`` (a tree made flat), ``cells``, ``screen``."""
