"""What usually causes what was found on a tensor, weighed by the numbers of this very one."""
