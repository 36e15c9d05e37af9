"""What holds the training back: measured, judged, and what would help by how much."""
