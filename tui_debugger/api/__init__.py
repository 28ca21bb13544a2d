"""The Python API: MindInsight's debugger interface on any dump, and what it lacked."""
