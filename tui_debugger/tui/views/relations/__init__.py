"""What made a tensor and what uses it: ``branches`` (what is opened), ``cells``, ``column`` (a list), ``screen``."""
