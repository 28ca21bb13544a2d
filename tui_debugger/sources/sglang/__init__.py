"""Dumps of SGLang: of its dumper (also in Miles and Megatron), and of its option for the outputs of every pass."""
