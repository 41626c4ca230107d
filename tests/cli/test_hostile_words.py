"""Words of a server that are printed to the terminal of a person."""

from __future__ import annotations

from exec_server.cli.port import port_command
from exec_server.cli.process import connection_notices

_HOSTILE = "gone\x1b]0;title\x07\x9b2J\r"


def test_words_of_a_server_do_not_control_the_terminal(capfd):
    port_command._say(_HOSTILE)
    connection_notices.say(_HOSTILE)
    notices = connection_notices.Notices()
    notices.remark(_HOSTILE)
    for line in capfd.readouterr().err.splitlines():
        assert line.isprintable() and "gone" in line
