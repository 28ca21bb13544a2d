"""Lets programs written for MindInsight run unchanged."""
