"""Examining the cuda backend's kernels without a GPU; see README.md."""
