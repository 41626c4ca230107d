"""What VS Code's Remote-SSH does, as far as it can be done without a desktop.

It runs `sh` with a script on standard input, which unpacks a server, starts it in the background
and prints the port that it listens on between two markers. Then it connects to that port by ssh.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import msgspec
import pytest

from exec_server.cli.ssh_door.door_target import open_target
from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.durable import is_running
from tests.support.leaks import eventually
from tests.support.ssh_host import PATIENCE

SERVER = """\
import http.server, os, sys
httpd = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
with open("port.new", "w") as file:
    file.write(f"{httpd.server_address[1]} {os.getpid()}")
os.rename("port.new", "port")
httpd.serve_forever()
"""

BOOTSTRAP = """\
set -e
uname -sm
dir='{place}'
mkdir -p "$dir" && cd "$dir"
cat > server.py <<'END'
{server}END
echo hello > file
nohup '{python}' server.py > log 2>&1 < /dev/null &
while [ ! -f port ]; do sleep 0.05; done
printf '%s: start\\n' marker
printf 'listeningOn==%s==\\n' "$(cat port)"
printf '%s: end\\n' marker
"""


@requirement("ssh:vscode")
def test_a_script_on_standard_input_starts_a_server_that_a_port_reaches(host, tmp_path):
    place = tmp_path / "vscode server"
    script = BOOTSTRAP.format(place=place, server=SERVER, python=sys.executable)
    done = host.ssh("-T", "build", "sh", input=script.encode())
    told = done.stdout.decode()
    port, pid = map(int, told.partition("listeningOn==")[2].partition("==")[0].split())
    try:
        path = host.place / "v"
        host.ssh("-O", "forward", "-L", f"{path}:127.0.0.1:{port}", "build")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(str(path))
            sock.sendall(b"GET /file HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.endswith(b"\r\n\r\nhello\n")
        host.ssh("-O", "cancel", "-L", f"{path}:127.0.0.1:{port}", "build")
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.one_loop
@requirement("ssh:keep")
async def test_a_program_in_the_background_is_kept_as_long_as_the_stanza_says():
    """The server ends what a session has left behind some time after the end of the session."""
    limits = msgspec.structs.replace(DEFAULT_LIMITS, detached_session_seconds=0.1)
    async with serve(limits=limits) as server:
        pids = {}
        for keep in (600.0, None):
            opening = open_target(server.url, None, token=None, token_file=None, keep=keep)
            async with opening as target:
                client = await target.client()
                done = await client.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"])
                pids[keep] = int(done.stdout)
        await eventually(lambda: not is_running(pids[None]), "it was not ended")
        assert is_running(pids[600.0])
    await eventually(lambda: not is_running(pids[600.0]), "it was not ended with the server")
