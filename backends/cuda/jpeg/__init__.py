"""accel's JPEG decoder on the device: from the bytes of many files to pixels equal to Pillow's (docs/jpeg.md).

    decoder.py   a batch: upload, launches, which of its files were not for the kernels
    described.py what the kernels are told of files, computed without a device; wanted.py: which are for them
    wanted.py    what of a plan is for it
    headers.py   all headers of the batch, on the host; index.py: and what stream indexes say of the files
    layout.py    headers -> the kernels' descriptors (of picture.h), and the memory they take
    stream.cu    the scan without stuffing              tables.cu    Huffman tables
    entropy.cu   symbols to coefficients, in parallel; symbols.h is the loop over the symbols
    segments.cu  the same of a file with an index         points.cu    the index of one without
    pixels.cu    inverse DCT, upsampling, colour          unpack.cu    planes that a cache keeps of a file

Its scope is that of the host's decoder (accel/codec/jpeg), whose header parser it shares: baseline and extended
sequential Huffman files of 8 bits in one scan, grey, YCbCr and RGB, sampled at whole ratios. Everything unusual in a
file makes it say no, and the host's decoders say what the file is.
"""

from accel.backends.cuda.jpeg.decoder import Decoder, Decoding
from accel.backends.cuda.jpeg.wanted import (
    Wanted,
    by_index,
    device_bytes,
    device_bytes_of,
    keys_of,
    source_of,
    wanted_of,
)

__all__ = [
    "Decoder",
    "Decoding",
    "Wanted",
    "by_index",
    "device_bytes",
    "device_bytes_of",
    "keys_of",
    "source_of",
    "wanted_of",
]
