"""Why an operator makes NaN or Inf of clean inputs: the rules, each by one kind of operator.

``operators`` is the table of types, ``domains`` and ``magnitudes`` hold the rules for functions that are not defined
everywhere and for results that are too large, ``cases`` is what they look at. The guidance weighs every cause, the
path to an origin names the likely ones.
"""
