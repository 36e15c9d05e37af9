"""The clocks of stages, and the memory that processes add their times up in."""
