"""A cache of files that outlives a run: a folder with a table of small rows, and segments that hold the content.

    cache.py      open, look up, read, put     filling.py    entries being written
    entry.py      what a row says              segments.py   the content: files that only grow
    table.py      rows, in sqlite3             folder.py     which folder, its owner and file system
    budget.py     claims, what is taken back   survey.py     its content, for people
    faults.py     what goes wrong              size.py       the option ``cache``, read

Nothing here knows what it keeps. All that is read is checked before it is used: a process may be killed at any
instruction, a disk may be full, and bytes may be flipped.
"""
