"""Starts the agents of searches and watches, confined like commands and by the keeper."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Mapping
from functools import partial

from exec_server.errors import InternalError
from exec_server.files.agents.agent_process import AgentOrder, StartedAgent
from exec_server.files.confined.interpreter import (
    HIDDEN,
    PASSED_ON,
    agent_arguments,
    helper_plan,
)
from exec_server.process.spawn import Launch, Spawner, SpawnFailed
from exec_server.process.start_terms import UserAccount
from exec_server.sandbox.launch import ConfinedCommand, RequestedCommand, confine
from exec_server.sandbox.model import Policy, Unenforceable
from exec_server.sandbox.placeholders import Folder
from exec_server.sandbox.user_reach import for_user
from exec_server.server.file_helpers import FilesOwner, Running, not_started

_ROOT = b"/"
# How many seconds the reason of an early end is waited for.
_LAST_WORDS = 2.0


class FileAgents:
    """Starts agents with the few variables of *env* that they need."""

    def __init__(self, spawner: Spawner, env: Mapping[str, str]) -> None:
        self._spawner = spawner
        self._env = {os.fsencode(k): os.fsencode(env[k]) for k in PASSED_ON if k in env}

    async def start(self, order: AgentOrder) -> StartedAgent:
        """Start an agent and give it its request. Raises RpcError."""
        account = order.owner.account if isinstance(order.owner, FilesOwner) else None
        argv = list(order.program) or agent_arguments(order.work)
        if order.policy is None:
            launch = _launch(argv[0], argv, self._env)
        else:
            launch = await self._confined(argv, order.policy, account)
        running = Running(self._spawner)
        try:
            spawned = await self._spawner.spawn(launch, running.on_exit)
        except SpawnFailed as exc:
            raise not_started(exc, argv[0], account) from exc
        stdout, stderr, stdin = spawned.fds
        running.take(spawned.pid, stderr, is_talkative=bool(order.program))
        try:
            await _give(stdin, order.request)
        except BaseException as exc:
            os.close(stdin)
            os.close(stdout)
            if not isinstance(exc, OSError):
                running.discard()
                raise
            raise InternalError(await _last_words(running)) from exc
        return StartedAgent(stdin, stdout, running)

    async def _confined(
        self, argv: list[bytes], policy: Policy, account: UserAccount | None
    ) -> Launch:
        env = dict(self._env)
        if account is not None:
            env[os.fsencode(HIDDEN)] = b"1"
        command = RequestedCommand(argv[0], argv, env, _ROOT, is_tty=False)
        confining = partial(_confine, command, policy, account)
        try:
            confined = await asyncio.get_running_loop().run_in_executor(None, confining)
        except (OSError, Unenforceable) as exc:
            raise InternalError(f"fs sandbox helper failed: {exc}") from exc
        launch = _launch(confined.program, confined.argv, confined.env)
        fence = confined.fence if account is None else account.around(confined.fence)
        return launch._replace(fence=fence, fds=confined.fds)


async def _last_words(running: Running) -> str:
    """Why a process has not read its request; for example, its sandbox cannot be enforced here."""
    try:
        async with asyncio.timeout(_LAST_WORDS):
            return await running.ended
    except TimeoutError:
        return "the process for the request ended at once"
    finally:
        running.discard()


def _confine(
    command: RequestedCommand, policy: Policy, account: UserAccount | None
) -> ConfinedCommand:
    plan = helper_plan(policy, command.program)
    if account is not None:
        plan = for_user(plan, account.uid, account.groups)
    return confine(command, plan, folder=Folder(is_shared=account is not None))


def _launch(program: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> Launch:
    return Launch(program, argv, env, _ROOT, size=None, wants_stdin=True)


async def _give(fd: int, request: bytes) -> None:
    """Write a request to a pipe that is empty."""
    if len(request) <= select.PIPE_BUF:
        _write(fd, request)
    else:
        await asyncio.get_running_loop().run_in_executor(None, _write, fd, request)


def _write(fd: int, data: bytes) -> None:
    """Write all of a request; its reader is just starting."""
    os.set_blocking(fd, True)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
