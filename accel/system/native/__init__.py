"""Compiled code: units of functions, made by numba in child processes, kept on disk, loaded without numba."""
