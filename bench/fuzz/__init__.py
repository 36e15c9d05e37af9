"""Differential fuzzing of accel's reading of image files against plain Pillow and torchvision."""
