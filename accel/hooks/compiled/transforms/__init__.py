"""What is known of torchvision's transforms: what they draw, and what they record."""
