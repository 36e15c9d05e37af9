"""What processes tell each other: the backend in force, messages of DataLoader workers, and their shared memory."""
