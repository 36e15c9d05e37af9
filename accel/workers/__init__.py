"""Sending from DataLoader workers to their parent: recipes in a message, batches in shared memory that is reused."""
