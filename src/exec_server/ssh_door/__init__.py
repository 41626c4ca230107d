"""The ssh door: OpenSSH, scp, sftp, rsync, git and everything else that speaks ssh, to any server.

OpenSSH starts a ProxyCommand, which is an ssh server for this one connection: it asks for no
password, listens on no port, and passes everything on to a server as its client. `asyncssh`, of the
extra `ssh`, is imported by `door` and the modules below it; the others are for commands that only
write a configuration.

    host_key.py         the host key, and the known_hosts file that pins it
    stanza.py           the stanza of ssh_config
    ssh_files.py        ~/.ssh/config and the file that it includes
    proxy_socket.py     the socket between OpenSSH and the door: passed on, or copied
    descriptor_passing.py  how OpenSSH takes a socket from its ProxyCommand
    open_doors.py       how a ProxyCommand finds a door that is open already
    doorkeeper.py       a door that stays open for a while
    quick_asyncssh.py   imports asyncssh without a search for libraries
    target.py           what the door opens to
    door_clients.py     the clients of one ssh connection, replaced when a session is lost
    door.py             the ssh server
    door_connection.py  what asyncssh's connection need not do
    packet_reader.py    large packets of data, past asyncssh's parser
    door_channel.py     what asyncssh's channel does not know
    door_session.py     a session: command, shell, terminal
    attached_session.py a session that takes part in a process that runs already
    remote_commands.py  the words, variables and directory of a command
    stty_modes.py       modes of a terminal as words of stty
    forwarding.py       ports and Unix sockets
    sftp_server.py      sftp on the file calls
    sftp_files.py       open files, read ahead and written behind
    old_scp.py          scp in its old protocol
    sftp_tools.py       operations that programs over there do
"""
