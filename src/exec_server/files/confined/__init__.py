"""File calls in a sandbox: a helper process does them, and is confined by the request's policy.

    confined_files.py      the file calls for one policy
    confined_discovery.py  the scans of `discovery` for one policy
    helper_calls.py        the part that both share
    helper_pool.py         warm helpers, one for each distinct plan
    mounted.py             checks that a helper's mount points are in place
    helper.py              the server's side of one helper
    packets.py             the packets between both sides
    helper_main.py         the helper process
    interpreter.py         how the process is started
    work.py                everything that a helper can be asked to do

A helper opens, lists and changes files. It answers with JSON, or with descriptors of regular files
that it has opened inside of the sandbox. It serves one plan, and no call widens its access.
"""
