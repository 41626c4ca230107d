"""`exec-server pair`: let one machine use another one, with a code.

pair_command.py      the options, and which of the following runs
offer.py             the machine that will run commands: shows a code
waiting.py           waits until the code is typed, or a signal comes
claim.py             the machine that will use it: sends the code and checks the key
forget.py            removes a pairing
pairing_code.py      the code: its parts, and the proof of a fingerprint
code_at_registry.py  `CODE@REGISTRY`
"""
