"""Reading JPEG files on the host: headers, and regions of pixels equal to Pillow's.

``header`` decides what accel claims; ``engines`` are the decoders; ``decode`` chooses one and checks it.
"""
