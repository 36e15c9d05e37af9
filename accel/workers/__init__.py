"""Between DataLoader workers and their parent: recipes in a message, batches in memory used again."""
