"""A connection plugin for Ansible: tasks run on an exec-server."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase
from ansible.utils.display import Display

import exec_server
from exec_server.integrations.boxes import SyncBox

DOCUMENTATION = """
name: exec_server
short_description: run tasks on an exec-server
description:
  - Commands and files go to a server of the package exec-server. Nothing listens on the machine
    if it is reached through a registry.
author: the authors of exec-server
options:
  server:
    description:
      - The URL of the server, or its name in environments.toml.
    default: inventory_hostname
    type: str
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: ansible_exec_server
    env:
      - name: ANSIBLE_EXEC_SERVER
  token:
    description:
      - The bearer token; by default the configured one, or that of EXEC_SERVER_TOKEN.
    type: str
    no_log: true
    vars:
      - name: ansible_exec_server_token
    env:
      - name: ANSIBLE_EXEC_SERVER_TOKEN
  sandbox:
    description:
      - What tasks may access, such as C(read-only) or C(workspace-write=/srv/app).
    type: str
    vars:
      - name: ansible_exec_server_sandbox
"""

_display = Display()


class Connection(ConnectionBase):
    """One connection for each host and worker process; it is never shared across a fork."""

    transport = "exec_server.exec_server.exec_server"
    has_pipelining = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._box: SyncBox | None = None

    def _connect(self) -> Connection:
        super()._connect()
        if self._box is None:
            token = self.get_option("token")
            options = {"token": str(token)} if token else {}
            server = str(self.get_option("server"))
            _display.vvv("CONNECT TO EXEC-SERVER", host=server)
            self._box = SyncBox(server, client_name="exec-server ansible", **options)
            try:
                self._box.client()
            except exec_server.ExecServerError as exc:
                self._box = None
                raise AnsibleConnectionFailure(f"{server}: {exc}") from exc
            self._connected = True
        return self

    def _client(self) -> Any:
        self._connect()
        assert self._box is not None
        return self._box.client()

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run *cmd* with the shell over there; background processes do not hold it up."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        try:
            done = self._client().run(
                ["/bin/sh", "-c", cmd], input=in_data or b"", sandbox=self.get_option("sandbox")
            )
        except exec_server.ConnectionClosed as exc:
            raise AnsibleConnectionFailure(str(exc)) from exc
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file to the server."""
        super().put_file(in_path, out_path)
        try:
            with open(in_path, "rb") as file:
                content = file.read()
        except FileNotFoundError as exc:
            raise AnsibleFileNotFound(str(exc)) from exc
        self._transfer(lambda files: files.write_bytes(str(out_path), content))

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file from the server."""
        super().fetch_file(in_path, out_path)
        content = self._transfer(lambda files: files.read_bytes(str(in_path)))
        with open(out_path, "wb") as file:
            file.write(content)

    def _transfer(self, call: Any) -> Any:
        try:
            files, sandbox = self._client().fs, self.get_option("sandbox")
            return call(files.sandboxed(sandbox) if sandbox else files)
        except exec_server.ConnectionClosed as exc:
            raise AnsibleConnectionFailure(str(exc)) from exc
        except FileNotFoundError as exc:
            raise AnsibleFileNotFound(str(exc)) from exc

    def close(self) -> None:
        """Disconnect, and end what tasks have left in the background."""
        super().close()
        box, self._box = self._box, None
        if box is not None:
            box.close()
        self._connected = False

    def reset(self) -> None:
        """Connect anew."""
        self.close()
        self._connect()
