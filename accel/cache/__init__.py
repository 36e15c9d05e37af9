"""What is kept of files from run to run, in a folder: a table of small rows, and segments that hold the content.

    folder.py     which folder, whose, on what file system     table.py      rows in sqlite3, the budget
    entry.py      what a row says of an entry                  segments.py   the content: files that only grow
    cache.py      look up, read, put

Nothing here knows what it keeps. Whatever is found is checked before it is followed: a process may be killed at any
instruction, a disk may be full, and bytes may be flipped.
"""
