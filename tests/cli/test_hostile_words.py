"""Words of a server that are printed to the terminal of a person."""

from __future__ import annotations

from exec_server.cli import log_setup
from exec_server.cli.port import port_command
from exec_server.cli.process.own_terminal import connection_notices
from tests.support.cli import finished
from tests.support.fake_server import Talk, fake_server

_HOSTILE = "gone\x1b]0;title\x07\x9b2J\r"


def test_words_of_a_server_do_not_control_the_terminal(capfd):
    port_command._say(_HOSTILE)
    connection_notices.say(_HOSTILE)
    notices = connection_notices.Notices()
    notices.remark(_HOSTILE)
    log_setup.print_error(_HOSTILE)
    log_setup.print_warning(_HOSTILE)
    log_setup.print_note(_HOSTILE)
    for line in capfd.readouterr().err.rstrip("\n").split("\n"):
        assert line.isprintable() and "gone" in line


async def test_an_error_of_a_server_does_not_control_the_terminal():
    async def refuse(talk: Talk) -> None:
        await talk.shake_hands()
        while True:
            await talk.refuse(await talk.receive(), -32603, _HOSTILE)

    async with fake_server(refuse) as url:
        for words in (("run", url, "--", "true"), ("whoami", url), ("ps", url)):
            done = await finished(*words)
            assert done.status != 0 and "gone" in done.stderr
            assert all(line.isprintable() for line in done.stderr.split("\n")), words
