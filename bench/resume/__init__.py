"""Exact resume: random resumes, each compared with the run that went through, and what they cost."""
