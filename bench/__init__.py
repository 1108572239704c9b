"""Side-by-side benchmarks: `python -m bench`, or `make bench`.

Every figure is taken in one run on one server, round by round, so that a noisy machine is noisy
for all; what counts is the ratio. Reading order: `harness.py` (the run), `contenders.py` (who
takes part), `works/` (what is measured), `pods/` (the programs that are measured, each in a
process of its own), `goals.py` (what has to come out), `report.py` (the table and the file).
"""
