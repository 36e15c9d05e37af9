"""Stock pipelines as flat programs, and batches whose random numbers are drawn in one go.

A batch of one of torchvision's datasets, whose transforms are torchvision's own, needs none of their Python: what they
would draw and record is known beforehand (``program``), and torch's generator tells what each draw would give
(``tape``). Where anything is not as it was when that was found out (``stock``), the batch goes its usual way.
"""
