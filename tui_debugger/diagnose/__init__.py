"""Says why something went wrong: where it began, what it relates to, its history, and what usually causes it."""
