"""The provider for Deep Agents Code, found and used as its command line does it."""

from __future__ import annotations

from deepagents_code.integrations.sandbox_factory import create_sandbox, get_default_working_dir

from integrations.lifetimes import check, is_gone, until


def test_the_command_line_finds_and_uses_the_server(server_url, tmp_path):
    assert get_default_working_dir("exec-server") == "/"
    with create_sandbox("exec-server", sandbox_id=server_url) as backend:
        assert backend.id == server_url
        assert backend.execute("echo hi").output == "hi\n"
        path = str(tmp_path / "note")
        assert backend.upload_files([(path, b"x")])[0].error is None
        assert backend.download_files([path])[0].content == b"x"
        pid = int(backend.execute("setsid sleep 600 & echo $!").output)
        backend.close()
    until(lambda: is_gone(pid), "the command was left behind")


LIFETIME = """
import sys
from deepagents_code.integrations.sandbox_factory import create_sandbox
url, command = sys.argv[1:]
with create_sandbox("exec-server", sandbox_id=url) as backend:
    backend.execute(command)
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)
