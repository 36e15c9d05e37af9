"""Recording calls of torchvision's functions on lazy images and tensors, for the hooks that share it."""
