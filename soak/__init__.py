"""Soak tests. One kills parts of a registry of several nodes while harnesses work; the other one
looks for memory, descriptors and tasks that grow.

run.py        starts the first one: `python soak/run.py --help`
main.py       its whole course
chaos.py      kills parts and starts them again
harnesses.py  the work of the harnesses, checked to the byte
report.py     the printed summary
memory.py     the second one: `python soak/memory.py --help`
workloads.py  its mixed work, of clients that behave and of others
samples.py    samples of a program, and whether they grow
ssh.py        clones and copies through the ssh door: `python soak/ssh.py --help`
observed.py   a program of ours that tells its open tasks
"""
