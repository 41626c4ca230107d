"""Commands about sandboxes.

sandbox_command.py  `sandbox`
policy_command.py   `sandbox policy`: what was allowed for good
sandbox_options.py  the options that confine a command, also for `run`
denial_advice.py    the options that would have allowed what was refused
doctor.py           `doctor`: its options and its output
doctor_checks.py    the checks of `doctor`
limit_checks.py     the check of `doctor` for limits
terminal_check.py   the check of `doctor` for the engine of models of terminals
hard_links.py       finds files that have names outside of a directory
"""
