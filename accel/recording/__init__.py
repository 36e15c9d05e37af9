"""Recorders: torchvision's functions, v1 and v2, as steps on late values."""
