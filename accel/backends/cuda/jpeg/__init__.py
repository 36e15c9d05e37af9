"""accel's JPEG decoder on the device: from the bytes of many files to pixels equal to Pillow's (docs/jpeg.md).

    decoding.py  files being decoded; those that the kernels could not decode
    described.py descriptions of files for the kernels, computed without a device
    requests.py  the files of a plan that are for the decoder
    headers.py   all headers of the batch, on the host    index.py     stream indexes
    layout.py    headers -> the kernels' descriptors (of picture.h), and the memory they take
    stream.cu    the scan without stuffing                tables.cu    Huffman tables
    entropy.cu   symbols to coefficients, in parallel; symbols.h is the loop over the symbols
    segments.cu  the same for a file with an index        points.cu    making an index for one without
    pixels.cu    inverse DCT, upsampling, colour

Its scope is that of the host's decoder (accel/codec/jpeg), whose header parser it shares: baseline and extended
sequential Huffman files of 8 bits in one scan, grey, YCbCr and RGB, sampled at whole ratios. It declines a file with
anything unusual, which is left to the host's decoders.
"""

from accel.backends.cuda.jpeg.decoding import Decoding
from accel.backends.cuda.jpeg.requests import Request

__all__ = ["Decoding", "Request"]
