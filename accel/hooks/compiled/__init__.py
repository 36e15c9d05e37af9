"""Stock pipelines as flat programs, and batches whose random numbers are drawn in one go.

A batch of one of torchvision's datasets, whose transforms are torchvision's own, needs none of their Python: what they
would draw and record is known beforehand (``program``), and the results of the draws are read ahead from torch's
generator (``tape``). If anything has changed since the program was made (``stock``), the batch goes the usual way.
"""
