"""The search for where something bad starts.

``search`` goes through a run step by step: where bad tensors begin (``causes``), and where they went. ``path`` goes
upstream from one tensor; ``upstream`` looks around in a rank, and at what other ranks sent. ``text`` has all of it in
words and as dicts.
"""
