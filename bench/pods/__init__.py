"""The programs that are measured. Each runs in a process of its own, told what to do line by line.

`control.py` is the line to the harness, `tally.py` what a pod notes while it works, `producer.py`
the loops that enqueue: the same for all, and with nothing but the standard library, because
PgQueuer lives in a virtual environment of its own.
"""
