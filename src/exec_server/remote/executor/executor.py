"""Keeps an environment reachable: registers, holds one socket to the rendezvous, serves streams."""

from __future__ import annotations

import asyncio
import logging
import os
import random as randomness
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn

from exec_server.errors import ConfigurationError, ConnectError, RegistryError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.remote.executor.executor_socket import ExecutorSocket, Serve
from exec_server.remote.executor.executor_states import OnState, StateReport
from exec_server.remote.executor.relays import Relay
from exec_server.remote.registry_client import (
    Registration,
    may_register_again,
    may_register_later,
)
from exec_server.remote.retry_delays import Random, Redial, registry_pause
from exec_server.remote.trace_headers import trace_headers
from exec_server.transport.frames import dial_frames

logger = logging.getLogger(__name__)

# Headers of the upgrade, and the environment variables that they are taken from.
_HEADERS = {"x-cluster-name": "OPENAI_CLUSTER", "x-openai-internal-caller": "DD_SERVICE"}


class Executor:
    """Runs until it is cancelled, or until the registry refuses it."""

    def __init__(
        self,
        relay: Relay,
        *,
        serve: Serve,
        holds_sessions: Callable[[], bool] = lambda: False,
        limits: Limits = DEFAULT_LIMITS,
        environ: Mapping[str, str] = os.environ,
        random: Random = randomness.random,
        on_state: OnState = lambda _state: None,
    ) -> None:
        self._relay = relay
        self._states = StateReport(on_state)
        self._serve = serve
        # While there are sessions, harnesses try to reconnect, and processes would end with us.
        self._holds_sessions = holds_sessions
        self._limits = limits
        self._environ = environ
        self._random = random
        self._redial = Redial(random=random, limits=limits)

    async def run(self) -> NoReturn:
        """Serve for ever; while the rendezvous cannot be reached, it is dialled again.

        Raises RegistryError and ConfigurationError.
        """
        registration = await self._register()
        while True:
            if await self._serve_once(registration) or self._relay.registers_each_time:
                registration = await self._register()
            await asyncio.sleep(self._redial.next_pause(hurry=self._holds_sessions()))

    async def _register(self) -> Registration:
        attempt = 0
        while True:
            try:
                registration = await self._relay.register()
            except RegistryError as exc:
                is_patient = self._holds_sessions() and may_register_again(exc)
                if not (is_patient or may_register_later(exc)):
                    raise
                logger.warning(
                    "registration is tried again later: %s", exc, extra={"notice": "registration"}
                )
                await asyncio.sleep(
                    registry_pause(attempt, random=self._random, limits=self._limits)
                )
                attempt += 1
            else:
                logger.info("registered as %s", registration.id)
                return registration

    async def _serve_once(self, registration: Registration) -> bool:
        """Hold a socket until it is lost; True if the rendezvous asks for another registration."""
        socket = ExecutorSocket(
            self._relay.new_mux(registration),
            serve=self._serve,
            judge=partial(self._relay.judge, registration),
            limits=self._limits,
        )
        try:
            await dial_frames(
                registration.url,
                socket,
                sizes=self._relay.sizes,
                limits=self._limits,
                headers=self._headers(),
                is_needed=self._holds_sessions if self._relay.answers_soon else None,
            )
            await self._hold(socket)
        except ConnectError as exc:
            logger.warning("rendezvous: %s", exc)
            return exc.status is not None and 400 <= exc.status < 500
        except ConfigurationError as exc:
            # The registry has named an invalid URL. The next one may be valid.
            logger.warning("rendezvous: %s", exc)
        finally:
            socket.drop()
            await socket.settle()
        return False

    async def _hold(self, socket: ExecutorSocket) -> None:
        loop = asyncio.get_running_loop()
        opened_at = loop.time()
        logger.info("connected to the rendezvous")
        self._states.connected()
        reason = await socket.wait_lost()
        self._redial.lived(loop.time() - opened_at)
        self._states.lost(is_replaced=socket.is_replaced)
        if socket.is_replaced:
            logger.error(
                "another executor has registered as %s; the sessions here have lost their "
                "connections, and this executor waits until the other one is gone",
                self._relay.environment_id,
            )
        else:
            logger.warning("the rendezvous is lost: %s", reason, extra={"notice": "rendezvous"})

    def _headers(self) -> list[tuple[str, str]]:
        return [
            ("x-request-id", f"req_{os.urandom(16).hex()}"),
            *upgrade_headers(self._environ),
        ]


def upgrade_headers(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers that both ends send to the rendezvous, with the current trace."""
    chosen = {header: environ.get(name, "") for header, name in _HEADERS.items()}
    return [(header, value) for header, value in (chosen | trace_headers()).items() if value]
