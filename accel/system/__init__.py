"""The process and the machine: memory, forks, cores, counters, the log, and private names of other libraries."""
