"""Limits of what a process may use: chosen, held and watched, mostly in the keeper.

    asked_limits.py     in the server: what a request asks for, between the server's own bounds
    output_limit.py     in the server: the output of a command, counted where it is read
    mechanisms.py       PURE: which mechanism holds which limit, by what the machine offers
    cgroup_places.py    PURE: where this process's own control groups are
    cgroups.py          control groups of both versions: made, entered, read and removed
    spare_groups.py     groups that are ready for the next start, and those that are done with
    tree_usage.py       what a tree of processes uses, from /proc
    limited_start.py    one start with limits: its groups, its rlimits, and its program
    limited_tree.py     one command with limits, and what of it has to be looked at
    limiter.py          in the keeper: all limited trees, looked at until they are over

The keeper imports limiter.py with the first start that has limits, and that loads seven others by
their paths; so these eight import only the standard library.
"""
