"""The cuda backend's kernels as NVRTC compiles them, run without a GPU: a strict interpreter of their PTX.

``nvrtc`` makes the text, ``parse`` reads it, ``translate`` makes NumPy code of its basic blocks (``arithmetic`` has
what NumPy lacks), ``machine`` runs that on ``memory``, ``device`` stands in for the backend's device.

    python -m ptx <photos>      # in tests/: the instructions of emit3 for real crops
"""
