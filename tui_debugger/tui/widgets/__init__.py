"""Widgets that know nothing about sessions: tables over rows on demand, a tree, bars and lines."""
