"""The search for where something bad starts.

``search`` goes through a run step by step: what a bad tensor was made from (``check.provenance``), whether any of that
is bad too (``check.origins``), and where it went. ``path`` goes upstream from one tensor; ``upstream`` looks around in
a rank, and at what other ranks sent. ``text`` has all of it in words and as dicts.
"""
