"""A tensor against another one."""
