"""File calls in a sandbox: done by a helper process that is confined as the policy says.

    files.py     the methods of `files.service`, for one policy
    discovery.py the scans of `discovery`, for one policy
    calls.py     what both have in common
    pool.py      one warm helper for each distinct plan, a bounded number, for a bounded time
    mounted.py   whether a helper's walls still stand
    helper.py    one helper as the server sees it: calls out, answers in, its end
    packets.py   how both sides write what they say
    child.py     the helper itself
    interpreter.py  how it is run
    work.py      what it can be asked to do

A helper opens, lists and changes; only answers come back, and descriptors of regular files that it
has opened inside of the sandbox. It lives for one plan: nothing it is told widens what it sees.
"""
