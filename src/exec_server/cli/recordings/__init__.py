"""Commands for recordings of terminals, and the option that makes them.

record_option.py       `--record` of `run`, `shell` and `attach`
recordings_command.py  `recordings`: list, find, open, export
replay_command.py      `replay`
player.py              plays a recording on this terminal, with keys
player_keys.py         the keys of the player
harmless_output.py     output of a recording without what reaches beyond the screen
recording_choice.py    the recording that a word names, and moments such as 1:30
"""
