"""``import tui_debugger.torch as tdbg``: the debugger inside a PyTorch training."""
