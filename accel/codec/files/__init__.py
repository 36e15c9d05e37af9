"""Files read whole: one reader, and the memory that it reads into."""
