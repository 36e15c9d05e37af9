"""Processes that start under the switch: what they are told, and how they come to know."""
