"""The random numbers of pipelines: read ahead from the generators, or drawn one at a time."""
