"""Which other nodes of the registry are alive.

Every node publishes a beat each second. A node that is silent for `hub_peer_seconds` counts as
dead. The servers of the bus can tell sooner that a node has died, because its subscription is
gone. But the subscription is also gone for a moment when a living node changes its server, so the
servers are believed only if the node has been silent for `hub_settle_seconds`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from exec_server.hub.bus import Bus, BusUnavailable, Unsubscribe
from exec_server.hub.cluster.node_messages import Beat, encode
from exec_server.limits import Limits

logger = logging.getLogger(__name__)

_SUBJECT = "beats"
_read_beat = msgspec.msgpack.Decoder(Beat).decode
# How many dead nodes are still named in our beats.
_REMEMBERED = 64
# A node that was heard within this many beats has missed none, apart from a small delay.
_STEADY_BEATS = 1.5


class Peers:
    """Calls *lost* with the name of a node when we give it up, or when it has given us up.

    Both nodes of a pair have to agree on that. A node that was only slow finds its own name in the
    other node's beats, and then gives up the other node as well.
    """

    def __init__(
        self,
        bus: Bus,
        node: str,
        *,
        lost: Callable[[str], None],
        limits: Limits,
        url: str | None = None,
    ) -> None:
        """*url* is the public URL of this node alone, if it has one."""
        self._bus = bus
        self._url = url
        self._node = node
        self._lost = lost
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._heard_at: dict[str, float] = {}
        self._urls: dict[str, str] = {}
        # How often we gave up each node, and how often it gave us up.
        self._given_up: dict[str, int] = {}
        self._gave_us_up: dict[str, int] = {}
        self._beat_at = self._loop.time()
        self._unsubscribe: list[Unsubscribe] = []
        self._questions: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self._unsubscribe.append(await self._bus.answer(_alive(self._node), lambda data: b""))
        self._unsubscribe.append(await self._bus.subscribe(_SUBJECT, self._hear))
        self._beat()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._questions):
            task.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)
        for unsubscribe in self._unsubscribe:
            await unsubscribe()

    @property
    def nodes(self) -> list[str]:
        """The other nodes that are alive."""
        return list(self._heard_at)

    def url_of(self, node: str) -> str | None:
        """The public URL that *node* announces."""
        return self._urls.get(node)

    @property
    def are_steady(self) -> bool:
        """True if all nodes were heard a moment ago, so that a missing answer means "not there".

        Otherwise one of them may be about to change its server.
        """
        if not self._heard_at:
            return True
        now, since = self._loop.time(), self._bus.connected_since
        if since is None or now - since < self._limits.hub_settle_seconds:
            return False
        limit = now - _STEADY_BEATS * self._limits.hub_beat_seconds
        return all(heard_at > limit for heard_at in self._heard_at.values())

    def _hear(self, data: bytes) -> None:
        try:
            beat = _read_beat(data)
        except msgspec.DecodeError:
            return
        if beat.node == self._node:
            return
        if beat.url is not None:
            self._urls[beat.node] = beat.url
        is_new = beat.node not in self._heard_at
        self._heard_at[beat.node] = self._loop.time()
        if is_new:
            logger.info("node %s is there", beat.node)
            self._say_that_we_live()
        times = beat.given_up.get(self._node, 0)
        if times != self._gave_us_up.get(beat.node, 0):
            self._gave_us_up[beat.node] = times
            self._lost(beat.node)

    def _beat(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_at(now + self._limits.hub_beat_seconds, self._beat)
        if now - self._beat_at > self._limits.hub_peer_seconds:
            # This process stood still, so the silence was ours. A node that gave us up meanwhile
            # says so in its next beat.
            self._heard_at = dict.fromkeys(self._heard_at, now)
        self._beat_at = now
        self._give_up_the_silent(now)
        self._say_that_we_live()

    def _say_that_we_live(self) -> None:
        self._bus.publish(_SUBJECT, encode(Beat(self._node, self._given_up, self._url)))

    def _give_up_the_silent(self, now: float) -> None:
        for node in tuple(self._heard_at):
            silent = self._silence(node, now)
            if silent > self._limits.hub_peer_seconds:
                self._give_up(node)
            elif silent > self._limits.hub_settle_seconds:
                task = self._loop.create_task(self._ask_for(node), name="ask for a node")
                self._questions.add(task)
                task.add_done_callback(self._questions.discard)

    def _silence(self, node: str, now: float) -> float:
        # While the bus was away we could not hear the node.
        return now - max(self._heard_at[node], self._bus.connected_since or 0.0)

    async def _ask_for(self, node: str) -> None:
        try:
            answer = await self._bus.request(
                _alive(node), b"", timeout=self._limits.hub_beat_seconds
            )
        except BusUnavailable:
            # The node may be slow, or we are cut off.
            return
        if answer is not None or node not in self._heard_at:
            return
        if self._silence(node, self._loop.time()) > self._limits.hub_settle_seconds:
            self._give_up(node)

    def _give_up(self, node: str) -> None:
        logger.warning("node %s is gone", node)
        del self._heard_at[node]
        self._urls.pop(node, None)
        self._gave_us_up.pop(node, None)
        self._remember(node)
        self._lost(node)

    def _remember(self, node: str) -> None:
        times = self._given_up.pop(node, 0) + 1
        self._given_up[node] = times
        while len(self._given_up) > _REMEMBERED:
            del self._given_up[next(iter(self._given_up))]


def _alive(node: str) -> str:
    return f"alive.{node}"
