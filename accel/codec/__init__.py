"""Reading JPEG files on the host: headers, and regions of pixels equal to Pillow's.

``header`` says what accel claims; ``engines`` are the decoders; ``decode`` picks one and checks it.
"""
