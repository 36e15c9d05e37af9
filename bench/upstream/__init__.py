"""torchvision's own tests under accel: what fails there, and does not fail without it."""
