"""A cache of files that outlives a run: a folder with a table of small rows, and segments that hold the content.

    cache.py      look up, read, put           opening.py    made, begun anew, or refused
    entry.py      what a row says              filling.py    entries being written
    table.py      rows, in sqlite3             segments.py   the content: files that only grow
    budget.py     claims, what is taken back   folder.py     which folder, its owner and file system
    faults.py     what goes wrong              survey.py     its content, for people
    size.py       the option ``cache``, read

Nothing here knows what it keeps. All that is read is checked before it is used: a process may be killed at any
instruction, a disk may be full, and bytes may be flipped.
"""
