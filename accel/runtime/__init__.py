"""Running plans: reading files, calling backends, threads, and submissions ahead of use."""
