"""The cuda backend's kernels as NVRTC compiles them, run without a GPU: a strict interpreter of their PTX.

``parse`` reads the text, ``translate`` makes NumPy code of its basic blocks (``arithmetic`` has what NumPy lacks),
``machine`` runs that on ``memory``, ``device`` stands in for the backend's device.
"""
