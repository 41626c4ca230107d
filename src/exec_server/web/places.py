"""The environments of the page, and their connections."""

from __future__ import annotations

import asyncio
import getpass
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from exec_server.errors import ExecServerError, RpcError
from exec_server.protocol.environment import EnvironmentInfo
from exec_server.protocol.paths import from_uri
from exec_server.web.place_ports import PlacePorts
from exec_server.web.recordings.recording_shelf import RecordingShelf

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.session_link import ConnectionState
    from exec_server.web.recordings.terminal_history import TerminalHistories
    from exec_server.web.shown_process import ShownProcess

logger = logging.getLogger(__name__)

PlaceState = Literal["idle", "connecting", "connected", "recovering", "failed"]

# How many seconds an environment has to disconnect when the program ends.
_FAREWELL = 5.0
_MAX_PERSON = 64

# What other programs of this machine forward to the environment of a name.
ForwardsElsewhere = Callable[[str], list[dict[str, str]]]


class OpenPlace(Protocol):
    """Connects to an environment; a session token continues a session, also one held elsewhere."""

    def __call__(
        self,
        *,
        session_token: str | None = None,
        take_over: bool = False,
        on_state: Callable[[ConnectionState], None] | None = None,
    ) -> AbstractAsyncContextManager[ExecServerClient]: ...


class PlaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An environment, as it is configured."""

    id: str
    name: str
    kind: str
    where: str
    is_default: bool
    open: OpenPlace


class PlaceGone(ExecServerError):
    """There is no connection to an environment."""


class Place:
    """One environment, and its connection if there is one."""

    def __init__(self, facts: PlaceFacts, on_change: Callable[[Place], None]) -> None:
        self.facts = facts
        self.state: PlaceState = "idle"
        self.problem: str | None = None
        self.info: EnvironmentInfo | None = None
        self.principal: str | None = None
        # Its ports that are open on this machine.
        self.ports = PlacePorts(facts.name)
        self._client: ExecServerClient | None = None
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def client(self) -> ExecServerClient:
        """The client of the connection. Raises PlaceGone if there is none."""
        if self._client is None:
            raise PlaceGone(f"`{self.facts.name}` is not connected")
        return self._client

    def as_json(self) -> dict[str, Any]:
        """The facts and the state, as the page gets them."""
        facts = {
            "id": self.facts.id,
            "name": self.facts.name,
            "kind": self.facts.kind,
            "where": self.facts.where,
            "default": self.facts.is_default,
            "state": self.state,
            "problem": self.problem,
        }
        if self.info is not None:
            facts["info"] = _info_facts(self.info) | {"principal": self.principal}
        return facts

    async def connect(self) -> None:
        """Connect if there is no connection, and wait for it. Raises PlaceGone."""
        if self._task is None or self._task.done():
            self._leave, self._settled = asyncio.Event(), asyncio.Event()
            self._set("connecting")
            self._task = asyncio.create_task(self._hold(), name=f"hold {self.facts.name}")
        await self._settled.wait()
        if self._client is None:
            raise PlaceGone(self.problem or f"`{self.facts.name}` is not connected")

    async def disconnect(self) -> None:
        """Disconnect and wait for the end; processes that are not durable end a little later."""
        self._leave.set()
        task = self._task
        if task is not None and not task.done():
            if self._client is None:
                task.cancel()
            done, _ = await asyncio.wait({task}, timeout=_FAREWELL)
            if not done:
                task.cancel()
                await asyncio.wait({task})

    async def _hold(self) -> None:
        problem = None
        try:
            async with self.facts.open(on_state=self._on_state) as client:
                await self._learn(client)
                self._client = client
                self.ports.adopt(client)
                self._set("connected")
                self._settled.set()
                problem = await self._until_gone(client)
        except (ExecServerError, OSError) as exc:
            problem = str(exc) or type(exc).__name__
        except asyncio.CancelledError:
            if not self._leave.is_set():
                raise
        except Exception as exc:
            logger.exception("the connection to %s failed", self.facts.name)
            problem = f"the program has failed: {type(exc).__name__}"
        finally:
            self._client = None
            self._set("idle" if problem is None else "failed", problem)
            self._settled.set()

    async def _until_gone(self, client: ExecServerClient) -> str | None:
        """Wait until the person leaves, or the session is lost; why it was lost."""
        closing = asyncio.ensure_future(client.wait_closed())
        leaving = asyncio.ensure_future(self._leave.wait())
        try:
            await asyncio.wait({closing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return None if self._leave.is_set() else "the connection was lost"
        finally:
            closing.cancel()
            leaving.cancel()
            await asyncio.gather(closing, leaving, return_exceptions=True)

    async def _learn(self, client: ExecServerClient) -> None:
        try:
            self.info = await client.environment_info()
            self.principal = (await client.whoami()).principal
        except RpcError as exc:
            # Other servers do not have these methods.
            logger.debug("%s does not say everything about itself: %s", self.facts.name, exc)

    def _on_state(self, state: ConnectionState) -> None:
        if self._client is not None and state in ("connected", "recovering"):
            self._set("connected" if state == "connected" else "recovering")

    def _set(self, state: PlaceState, problem: str | None = None) -> None:
        self.state, self.problem = state, problem
        self._on_change(self)


class PagePlaces:
    """All environments of the page, and the processes that tabs show."""

    def __init__(
        self,
        facts: Iterable[PlaceFacts],
        *,
        recordings: RecordingShelf | None = None,
        histories: TerminalHistories | None = None,
        is_local: bool = True,
        forwards_elsewhere: ForwardsElsewhere = lambda name: [],
    ) -> None:
        """*is_local* is true if browsers are on this machine, so that its ports are theirs."""
        self._observers: set[Callable[[str, dict[str, Any]], None]] = set()
        self._places = {each.id: Place(each, self._place_changed) for each in facts}
        # The processes that tabs have opened, by their id on this page.
        self.shown: dict[str, ShownProcess] = {}
        # What other participants of a shared process call the person.
        self.person = _person()
        self.recordings = RecordingShelf(None) if recordings is None else recordings
        self.histories = histories
        self.is_local = is_local
        self.forwards_elsewhere = forwards_elsewhere

    def find(self, place_id: str) -> Place | None:
        return self._places.get(place_id)

    def as_json(self) -> list[dict[str, Any]]:
        return [place.as_json() for place in self._places.values()]

    def observe(self, observer: Callable[[str, dict[str, Any]], None]) -> None:
        """Call *observer* with the name and the facts of every event, until `forget`."""
        self._observers.add(observer)

    def forget(self, observer: Callable[[str, dict[str, Any]], None]) -> None:
        self._observers.discard(observer)

    def tell(self, event: str, facts: dict[str, Any]) -> None:
        """Tell all tabs about something."""
        for observer in list(self._observers):
            observer(event, facts)

    async def close(self) -> None:
        """End what was opened here, and disconnect."""
        await asyncio.gather(*(shown.end() for shown in list(self.shown.values())))
        await asyncio.gather(*(place.ports.close() for place in self._places.values()))
        await asyncio.gather(*(place.disconnect() for place in self._places.values()))
        if self.histories is not None:
            await asyncio.to_thread(self.histories.close)

    def _place_changed(self, place: Place) -> None:
        self.tell("place", place.as_json())


def _person() -> str:
    try:
        return getpass.getuser()[:_MAX_PERSON]
    except (OSError, KeyError):
        # The user has no name on this machine.
        return "page"


def _info_facts(info: EnvironmentInfo) -> dict[str, Any]:
    home = info.user_home_dir
    return {
        "version": info.executor_version,
        "system": info.platform_os,
        "shell": info.shell.path,
        "cwd": None if info.cwd is None else _native(info.cwd),
        "home": _native(home) if isinstance(home, str) else None,
        "sandbox": info.sandbox.rung if isinstance(info.sandbox, msgspec.Struct) else None,
        "capabilities": sorted(name for name, has in info.capabilities.items() if has),
    }


def _native(uri: str) -> str:
    """The path that a URI names, as it can be shown."""
    if not uri.startswith("file:"):
        return uri
    return from_uri(uri).decode("utf-8", "replace")
