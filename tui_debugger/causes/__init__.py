"""Causes: what a bad tensor was made from, and the one rule that says where something bad begins.

``made_from`` fills ``table.Causes`` with what is known of a step; ``rule`` says of every tensor whether it is an
origin, was passed on, is by design, or cannot be judged. Marks of hits, the search over a run and the path from a
tensor ask it, for dumps and for trainings that run.
"""
