"""Causes: the values that a bad tensor was made from, and the rule that says where NaN or Inf begins.

``made_from`` fills ``table.Causes`` with what is known of a step; ``rule`` says of every tensor whether it is an
origin, was passed on, is by design, or cannot be judged. Marks of hits, the search over a run and the path from a
tensor ask it, for dumps and for trainings that run.
"""
