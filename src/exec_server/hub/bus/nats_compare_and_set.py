"""The fence of a NATS bus: a KV bucket, used for nothing else."""

from __future__ import annotations

import asyncio

from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import (
    APIError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    ServiceUnavailableError,
)
from nats.js.kv import KeyValue

from exec_server.errors import ConfigurationError
from exec_server.hub.bus import Held
from exec_server.hub.bus.nats_client import Client
from exec_server.limits import Limits

# What JetStream says: another node has made the bucket meanwhile, or it does not run as a cluster.
_NAME_IN_USE = 10058
_NOT_CLUSTERED = 10074
# A majority of three survives the loss of one; two copies survive no more than one does.
_COPIES = 3
# How long one question may take; a server that knows of no leader does not even say so.
_ATTEMPT_SECONDS = 1.0


class Fence:
    """All methods raise nats-py's errors when the servers do not answer, or say no."""

    def __init__(self, client: Client, bucket: str, *, servers: int, limits: Limits) -> None:
        self._client = client
        self._bucket = bucket
        self._servers = servers
        self._limits = limits
        self._stream: JetStreamContext = client.jetstream(timeout=limits.bus_timeout)
        self._quick: JetStreamContext = client.jetstream(
            timeout=min(_ATTEMPT_SECONDS, limits.bus_timeout)
        )
        self._values: KeyValue | None = None

    async def prepare(self) -> None:
        """Find or make the bucket, for which a cluster that has just started takes a while.

        Raises ConfigurationError at once when there never will be one.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.bus_start_timeout
        while True:
            try:
                await self._open()
                return
            except (APIError, TimeoutError) as exc:
                if isinstance(exc, ServiceUnavailableError) and not self._client.has_jetstream:
                    raise ConfigurationError(
                        "the NATS servers of the bus run without JetStream, which holds the fence"
                    ) from exc
                if loop.time() > deadline:
                    raise
            # No leader yet; nothing tells when there is one.
            await asyncio.sleep(self._limits.bus_pause)

    async def held(self, key: str) -> Held | None:
        try:
            entry = await self._get(key)
        except KeyNotFoundError:
            return None
        assert entry.revision is not None
        return Held(entry.value or b"", entry.revision)

    async def _get(self, key: str) -> KeyValue.Entry:
        """Ask again and again: what is asked while the servers elect a leader is never answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.bus_timeout
        while True:
            try:
                return await (await self._open()).get(key)
            except (ServiceUnavailableError, TimeoutError):
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(self._limits.bus_pause)

    async def hold(self, key: str, value: bytes, *, after: int) -> int | None:
        try:
            return await self._put(key, value, after=after)
        except NoStreamResponseError:
            # The bucket is gone, as after a loss of all disks: nobody has got the value.
            self._values = None
        return await self._put(key, value, after=after)

    async def _put(self, key: str, value: bytes, *, after: int) -> int | None:
        values = await self._open()
        try:
            if after == 0:
                return await values.create(key, value)
            return await values.update(key, value, last=after)
        except KeyWrongLastSequenceError:
            return None

    async def _open(self) -> KeyValue:
        if self._values is None:
            try:
                self._values = await self._quick.key_value(self._bucket)
            except BucketNotFoundError:
                await self._make()
                self._values = await self._quick.key_value(self._bucket)
        return self._values

    async def _make(self) -> None:
        known = max(self._servers, self._client.known_servers)
        copies = _COPIES if known >= _COPIES else 1
        try:
            await self._make_with(copies)
        except APIError as exc:
            if exc.err_code == _NOT_CLUSTERED and copies > 1:
                await self._make_with(1)
            elif exc.err_code != _NAME_IN_USE:
                raise

    async def _make_with(self, copies: int) -> None:
        config = KeyValueConfig(
            bucket=self._bucket, history=1, storage=StorageType.FILE, replicas=copies, direct=False
        )
        await self._stream.create_key_value(config)
