"""`exec-server ssh-config` and `ssh-proxy`: OpenSSH to any server, without an open port.

ssh_config_command.py  prints or installs the stanza of ssh_config
ssh_proxy_command.py   the ProxyCommand of that stanza: an ssh server for one connection
known_door.py          whether a door is open for these words, asked before anything is imported
proxy_words.py         the words of `ssh-proxy`
door_needs.py          the host key, and asyncssh
door_target.py         opens the server or the process that the name of the host means
attached.py            attaches to a process for an ssh connection
attached_process.py    the process that it is attached to: output, keys, and who drives
"""
