"""accel's benchmarks, run from a checkout: ``python -m bench throughput``. See bench/README.md."""
