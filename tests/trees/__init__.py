"""Mixed trees, as people have them: a dump of any layout, files of other kinds, and at most one bad tensor somewhere.

``python -m tests.trees bad 17 DIR`` writes tree 17 of the bad ones into a directory, to be looked at.
"""
