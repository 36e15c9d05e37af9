"""What everything stands on: memory, forks, counters, and how other people's names are found and replaced."""
