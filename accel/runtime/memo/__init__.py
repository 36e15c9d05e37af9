"""What a cache has of a batch, and what is put in: looked up, planned, computed, kept."""
