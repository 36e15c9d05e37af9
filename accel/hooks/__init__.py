"""The replacements for functions of Pillow, torch and torchvision; all of it reversible."""
