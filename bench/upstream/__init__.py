"""torchvision's own tests under accel: the failures that they do not have without it."""
