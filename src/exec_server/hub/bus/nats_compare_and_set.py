"""Compare-and-set for a NATS bus: values in a KV bucket of their own."""

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
from exec_server.hub.bus import StoredValue
from exec_server.hub.bus.nats_client import NatsClient
from exec_server.limits import Limits

# Error codes of JetStream: another node has made the bucket meanwhile; the server runs alone.
_NAME_IN_USE = 10058
_NOT_CLUSTERED = 10074
# Three copies survive the loss of one. Two need both for a majority, so they survive no loss.
_COPIES = 3
# How long one question may take. A server that knows of no leader does not answer at all.
_ATTEMPT_SECONDS = 1.0


class CompareAndSet:
    """All methods raise nats-py's errors if the servers do not answer or refuse."""

    def __init__(self, client: NatsClient, bucket: str, *, servers: int, limits: Limits) -> None:
        self._client = client
        self._bucket = bucket
        self._servers = servers
        self._limits = limits
        self._stream: JetStreamContext = client.jetstream(timeout=limits.bus_timeout)
        self._quick: JetStreamContext = client.jetstream(
            timeout=min(_ATTEMPT_SECONDS, limits.bus_timeout)
        )
        self._bucket_values: KeyValue | None = None

    async def prepare(self) -> None:
        """Find or make the bucket. A cluster that has just started needs some time for that.

        Raises ConfigurationError at once if the servers cannot have one.
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
                        "the NATS servers of the bus run without JetStream, which must keep values"
                    ) from exc
                if loop.time() > deadline:
                    raise
            # There is no leader yet, and no event that tells when there is one.
            await asyncio.sleep(self._limits.bus_pause)

    async def read_value(self, key: str) -> StoredValue | None:
        try:
            entry = await self._get(key)
        except KeyNotFoundError:
            return None
        assert entry.revision is not None
        return StoredValue(entry.value or b"", entry.revision)

    async def _get(self, key: str) -> KeyValue.Entry:
        """Read a value, with repeated requests.

        A request that arrives while the servers elect a leader is never answered.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.bus_timeout
        while True:
            try:
                return await (await self._open()).get(key)
            except (ServiceUnavailableError, TimeoutError):
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(self._limits.bus_pause)

    async def compare_and_set(self, key: str, value: bytes, *, after: int) -> int | None:
        try:
            return await self._put(key, value, after=after)
        except NoStreamResponseError:
            # The bucket is gone, as after a loss of all disks, so the value was not written.
            self._bucket_values = None
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
        if self._bucket_values is None:
            try:
                self._bucket_values = await self._quick.key_value(self._bucket)
            except BucketNotFoundError:
                await self._make()
                self._bucket_values = await self._quick.key_value(self._bucket)
        return self._bucket_values

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
