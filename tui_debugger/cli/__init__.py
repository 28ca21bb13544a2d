"""Commands: argparse, one file per command. Only open and demo import the TUI."""
