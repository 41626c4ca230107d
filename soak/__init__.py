"""A soak test: parts of a registry of several nodes are killed at random while harnesses work.

run.py        starts it: `python soak/run.py --help`
main.py       the whole course of a soak
chaos.py      kills parts and starts them again
harnesses.py  the work of the harnesses, checked to the byte
report.py     the printed summary
"""
