"""Attempts to get out of a sandbox, made from inside: ``python -m escapes STAGE``.

STAGE is a JSON file that says where everything is (see `attempt.Stage`). Each attempt runs in a
process of its own and becomes one line of JSON on stdout: its name, and "done" if it worked, the
name of the error or signal that ended it, or "no gain" if the system said yes to nothing of use.

They are harmless where they succeed: they change what was made for them, write back what is there,
open without writing, send signal 0, or ask with arguments that are refused after the permission.
Only the standard library is used, and whatever Python there is.
"""
