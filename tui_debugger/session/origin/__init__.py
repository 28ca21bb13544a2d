"""Where something bad starts.

``making`` says what a tensor was made from, ``examine`` whether any of that is bad too, ``look`` does so for one
step of one rank, ``search`` step by step for a whole run, ``spread`` where it went; ``rows`` has it all as dicts.
"""
