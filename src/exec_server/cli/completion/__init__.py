"""`exec-server completion`: completions for shells.

completion_command.py  describes every command by its parser
completion_scripts.py  the scripts for bash, zsh and fish
remote_paths.py        paths on a server
"""
