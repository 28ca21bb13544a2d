"""A report of a check that can be pasted into a bug report.

``material`` gathers what there is to say about a result, ``markdown`` writes it, ``rows`` has it as dicts.
"""
