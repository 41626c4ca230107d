"""The sandbox: what a request may touch, and how the kernel is made to hold it to that.

    wire shapes        protocol/sandbox.py      the current grammar and every older one
    policy.py   PURE   shapes, cwd, roots, TMPDIR -> Policy: absolute rules, globs, network
    plan.py     looks  Policy and the file system as it is now -> Plan: what is mounted, in order
    resolved_rules.py  looks  where rules lead, what must not come to be, what cannot be enforced
    globs.py    looks  files to deny by a pattern
    protected_names.py names in writable directories that stay as they are
    file_system_facts.py looks  the questions that plans ask the file system, and where paths lead
    backends.py        which backend enforces a Plan here; the one place where a policy is refused
    bubblewrap.py      a Plan as bubblewrap's arguments
    landlock.py        a Plan as a Landlock ruleset, where one can express it
    seccomp.py         the system call filters, compiled by libseccomp
    placeholders.py    mount points that had to be made on the host, and their certain end
    denial.py   PURE   whether an exit looks like the sandbox's doing
    launch.py          a command and a Plan -> what the keeper starts instead
    in_keeper.py keeper the one place where a child is confined; loaded there by its path

A Policy is a value: equal policies are the same policy. A Plan is made anew for every start and for
every file call, because it depends on what exists; equal plans may share a warm helper.
"""
