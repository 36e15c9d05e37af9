"""Exact resume: where an epoch stands, as plain data, and the proof that it goes on from there."""
