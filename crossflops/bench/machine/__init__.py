"""What this machine claims to be, and what it does when it is measured.

In: the system's files, drivers, a C compiler. Out: its processor, its GPUs, its measured peaks.
May import: bench, workers, report, files, errors.
"""
