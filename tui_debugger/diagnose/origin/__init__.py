"""Where something bad starts.

``making`` says what a tensor was made from, ``examine`` whether any of that is bad too, ``look`` does so for one
step of one rank, ``search`` step by step for a whole run, ``spread`` where it went, ``telling`` what is worth knowing.
``path`` goes upstream from one tensor: ``tracer`` walks, ``upstream`` looks around in a rank, ``exchange`` at other
ranks. ``words`` has all of it in words, ``rows`` as dicts.
"""
