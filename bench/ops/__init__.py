"""Every op by itself: its equality with torchvision on every backend, and its speed beside torchvision and OpenCV."""
