"""What was recorded, as plain data: options, sources of pixels, steps on them, and rows of many images."""
