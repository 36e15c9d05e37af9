"""Differential fuzzing of what accel makes of image files against plain Pillow and torchvision."""
