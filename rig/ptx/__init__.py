"""A strict interpreter of PTX, to run the cuda backend's kernels as compiled by NVRTC without a GPU.

``parse`` reads the text, ``translate`` makes NumPy code of its basic blocks (``arithmetic`` has what NumPy lacks),
``machine`` runs that on ``memory``, ``device`` stands in for the backend's device.
"""
