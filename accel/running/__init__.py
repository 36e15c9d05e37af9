"""Running plans: at once, on a team of threads, or ahead of use on a stream."""
