"""Activations and gradients that Megatron-LM saves beside its checkpoints."""
