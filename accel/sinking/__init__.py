"""A training step fed from a queue on the device, and run many times before the user's Python is asked again."""
