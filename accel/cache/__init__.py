"""What is kept of files from run to run, in a folder: a table of small rows, and segments that hold the content.

    cache.py      look up, read, put           opening.py    made, begun anew, or refused
    entry.py      what a row says              filling.py    what is yet to be written
    table.py      rows, in sqlite3             segments.py   the content: files that only grow
    budget.py     whose bytes are whose        folder.py     which folder, whose, on what file system
    faults.py     what goes wrong              survey.py     what is there, for people

Nothing here knows what it keeps. Whatever is found is checked before it is followed: a process may be killed at any
instruction, a disk may be full, and bytes may be flipped.
"""
