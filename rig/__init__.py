"""The cuda backend's kernels examined without a GPU; README.md says how."""
