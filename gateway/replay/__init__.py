"""Recorded decisions, made again by another policy."""
