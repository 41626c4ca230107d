"""An environment for Harbor, on servers that are made for it.

::

    harbor run -e exec_server.integrations.harbor:ExecServerEnvironment \\
        --ek pool=box-1,box-2 --ek disposable=true ...

A trial has a server to itself: tasks use fixed places there (/logs, /tests, /solution).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult

import exec_server
from exec_server.integrations.boxes import AsyncBox, Users

# Removed before and after a trial, so that no trial sees what another one has left.
_PLACES = ("/logs", "/tests", "/solution")

# The servers that no trial of this program uses, by pool and event loop.
_pools: dict[tuple[object, str], asyncio.Queue[str]] = {}


def _free(pool: str) -> asyncio.Queue[str]:
    key = (asyncio.get_running_loop(), pool)
    if key not in _pools:
        _pools[key] = asyncio.Queue()
        for name in filter(None, map(str.strip, pool.split(","))):
            _pools[key].put_nowait(name)
    return _pools[key]


class ExecServerEnvironment(BaseEnvironment):
    """One trial on one server of a pool.

    *pool* has the URLs or names of servers, with commas between them. *disposable* has to be true:
    it says that these servers belong to Harbor and have what the image of the task has.
    """

    def __init__(
        self, *args: Any, pool: str = "", disposable: bool | str = False, **kwargs: Any
    ) -> None:
        # The base class validates the definition, so these are set first.
        self._pool = pool
        self._is_disposable = str(disposable).lower() == "true"
        self._server: str | None = None
        self._box: AsyncBox | None = None
        self._users = Users()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "exec-server"

    def _validate_definition(self) -> None:
        if not self._pool:
            raise ValueError("name the servers: --ek pool=box-1,box-2")
        if not self._is_disposable:
            raise ValueError(
                "trials remove /logs, /tests and /solution on a server and run as its user; "
                "say that the servers are made for that: --ek disposable=true"
            )

    # The lifecycle.

    async def start(self, force_build: bool) -> None:
        self._server = await _free(self._pool).get()
        try:
            self._box = AsyncBox(self._server, client_name="exec-server harbor")
            await self._clear()
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self._release()
            raise

    async def stop(self, delete: bool) -> None:
        try:
            if delete and self._box is not None:
                await self._clear()
        finally:
            await self._release()

    async def _clear(self) -> None:
        client = await self._client()
        for place in _PLACES:
            await client.fs.remove(place, recursive=True, force=True)

    async def _release(self) -> None:
        """End what the trial has started, and give the server back."""
        box, self._box = self._box, None
        if box is not None:
            await box.close()
        if self._server is not None:
            _free(self._pool).put_nowait(self._server)
            self._server = None

    async def _client(self) -> exec_server.ExecServerClient:
        if self._box is None:
            raise RuntimeError("the environment is not started")
        return await self._box.client()

    # Commands.

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        client = await self._client()
        prefix = await self._users.prefix(client, self._resolve_user(user))
        process = await client.start(
            [*prefix, "/bin/bash", "-c", command],
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
            ensure=True,
            on_gap="skip",
        )
        output: dict[str, list[str]] = {"stdout": [], "stderr": []}
        try:
            async with asyncio.timeout(timeout_sec):
                await self._follow(process, output)
                status = await process.wait()
        except TimeoutError:
            await process.terminate()
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        except BaseException:
            # The phase is over: a cancelled command must not run on.
            process.abandon()
            raise
        out, err = ("".join(parts) for parts in output.values())
        return ExecResult(stdout=out, stderr=err, return_code=status)

    async def _follow(
        self, process: exec_server.RemoteProcess, output: dict[str, list[str]]
    ) -> None:
        """Collect the output until the command has exited, and a moment longer."""
        tell = self._output_callback()

        async def collect() -> None:
            async for chunk in process:
                stream = "stderr" if chunk.stream == "stderr" else "stdout"
                text = chunk.data.decode(errors="replace")
                output[stream].append(text)
                if tell is not None:
                    await tell(text, stream)

        collecting = asyncio.create_task(collect())
        exiting = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({collecting, exiting}, return_when=asyncio.FIRST_COMPLETED)
            # A server in the background may hold the output open.
            await asyncio.wait({collecting}, timeout=exec_server.DEFAULT_LIMITS.run_drain)
            if collecting.done():
                collecting.result()
        finally:
            collecting.cancel()
            exiting.cancel()
            await asyncio.gather(collecting, exiting, return_exceptions=True)

    # Files. The names of the parameters are part of the contract.

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await (await self._client()).fs.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await (await self._client()).fs.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await (await self._client()).fs.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await (await self._client()).fs.download(source_dir, target_dir)
