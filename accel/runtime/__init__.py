"""Plans carried out: reading, backends, threads, and submissions ahead of use."""
