"""What late images are made of: sources, read from their headers, and the steps recorded on them."""
