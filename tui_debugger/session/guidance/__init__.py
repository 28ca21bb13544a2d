"""What was found on a tensor, why it usually comes to that, what speaks for which cause here, and what to do next.

``evidence`` gathers what the session knows around the tensor; ``overflow`` (with the rules of ``hazards``),
``weights``, ``sizes``, ``activations`` and ``gradients`` weigh the causes of one family of conditions each; ``explain``
puts it together, ``lines`` and ``rows`` have it as text and as dicts.
"""
