"""Statistics, conditions, scanning, recommendation, origin: numpy only, no files of any particular tool."""
