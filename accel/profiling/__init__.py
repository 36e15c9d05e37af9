"""The profiler: measures a training, names its bottleneck, and predicts how much changes would help."""
