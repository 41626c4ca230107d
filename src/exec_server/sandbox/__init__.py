"""The sandbox: what a request may touch, and how the kernel is made to enforce it.

    protocol/sandbox.py         the wire shapes: the current grammar and every older one
    model.py              PURE  the types that the parts below exchange
    policy.py             PURE  shapes, cwd, roots, TMPDIR -> Policy: absolute rules, globs, network
    containment.py        PURE  whether a Policy or a Plan gives no more than another one
    floor.py              PURE  the policies of a principal whose floor no request lifts
    plan.py               looks Policy and the file system as it is now -> Plan: mounts in order
    resolved_rules.py     looks where rules lead, what must stay missing, what cannot be enforced
    globs.py              looks files to deny by a pattern
    protected_names.py    PURE  names in writable directories that must not be changed
    own_places.py         looks the server's own code and secrets, which no sandbox may touch
    user_reach.py         looks a Plan for another Unix user, who cannot reach everything
    host_mounts.py        looks other paths of a file, where the host has mounted it twice
    file_system_facts.py  looks the questions that plans ask the file system, and where paths lead
    backends.py                 which backend enforces a Plan here; the only place that refuses one
    bubblewrap.py               a Plan as bubblewrap's arguments
    landlock.py                 a Plan as a Landlock ruleset, where Landlock can express it
    seccomp.py                  the system call filters, compiled by libseccomp
    placeholders.py             mount points that had to be made on the host, and their removal
    denial.py             PURE  whether a process probably ended because of the sandbox
    launch.py                   a command and a Plan -> what the keeper starts instead
    grant_file.py               what a user has allowed for good, in a file
    guard.py                    compares a finished sandbox with its Plan before the command runs
    wall_watch.py               watches the mounts of a sandbox while its command runs
    as_user.py                  starts a program as another Unix user; the keeper loads it
    inner_command.py            how a command in bubblewrap ends
    in_keeper.py                the only place where a child is confined; the keeper loads it
    supervisor/                 records what is refused to a command, and grants it

"looks" means that a module reads the file system and changes nothing. A Policy is a value: equal
policies are the same policy. A Plan is made anew for every start and for every file call, because
it depends on what exists; equal plans may share a warm helper.
"""
