"""Portal: an event loop in its own thread, for programs without one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from exec_server.errors import ConnectionClosed, ExecServerError

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient

T = TypeVar("T")
W = TypeVar("W")

# How long interrupted work may take to clean up, for example to kill a command.
_CLEAN_UP = 5.0


class Portal:
    """Runs asynchronous code for any number of threads, until it is closed.

    If a thread that waits here is interrupted, for example by Ctrl-C, its work is cancelled.
    """

    def __init__(self) -> None:
        # Reentrant, because garbage may be collected, and iterators be closed, while it is held.
        self._lock = threading.RLock()
        self._is_closed = False
        self._closing: set[asyncio.Task[None]] = set()
        # True if it belongs to one client, and ends with it.
        self.has_owner = False
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        started: Future[None] = Future()
        # A program that ends without closing the portal does not wait for this thread.
        self._thread = threading.Thread(
            target=self._main, args=(started,), name="exec-server", daemon=True
        )
        self._thread.start()
        started.result()

    def _main(self, started: Future[None]) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        started.set_result(None)
        await self._stopping.wait()

    @property
    def is_here(self) -> bool:
        """True in the thread of the loop."""
        return threading.current_thread() is self._thread

    # Work in the loop.

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Await *awaitable* in the loop and return its result."""
        outcome: Future[T] = Future()
        job = _PortalJob(awaitable, outcome)
        try:
            if self._submit(job.start):
                return outcome.result()
        except BaseException:
            # This thread was interrupted, perhaps before the loop has got the job.
            if not outcome.done() and self._cancel(job):
                wait_for([outcome], timeout=_CLEAN_UP)
            raise
        job.drop()
        raise ConnectionClosed("the client is closed", may_have_run=False)

    def _cancel(self, job: _PortalJob[T]) -> bool:
        """Have *job* cancelled in the loop; False if it cannot be there."""
        if self.is_here or not self._submit(job.cancel):
            job.drop()
            return False
        return True

    def run(self, function: Callable[[], T]) -> T:
        """Call *function* in the loop and return its result; here, if the loop has ended."""
        if self.is_here:
            return function()
        outcome: Future[T] = Future()

        def call() -> None:
            try:
                outcome.set_result(function())
            except BaseException as exc:
                outcome.set_exception(exc)

        return outcome.result() if self._submit(call) else function()

    def _submit(self, callback: Callable[[], None]) -> bool:
        if self.is_here:
            raise RuntimeError("a callback may not wait for what happens in its own thread")
        with self._lock:
            if self._is_closed:
                return False
            assert self._loop is not None
            self._loop.call_soon_threadsafe(callback)
            return True

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items of *source*, one after the other."""
        try:
            while True:
                try:
                    item = self.wait(source.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._close_source(source)

    def _close_source(self, source: AsyncIterator[object]) -> None:
        """Have *source* closed in the loop, without a wait for it.

        The collector of garbage may end an iterator in any thread and at any moment: in the thread
        of the loop, or in that of another loop which does the same with an iterator from here.
        """
        if not hasattr(source, "aclose"):
            return

        def close() -> None:
            assert self._loop is not None
            task = self._loop.create_task(_closed(source))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

        with self._lock:
            if not self._is_closed:
                assert self._loop is not None
                self._loop.call_soon_threadsafe(close)

    @contextmanager
    def entered(
        self,
        context: AbstractAsyncContextManager[T],
        wrap: Callable[[Portal, T], W],
    ) -> Iterator[W]:
        """Enter *context*; the block gets its value, wrapped by *wrap*."""
        inner = self.wait(context.__aenter__())
        try:
            yield wrap(self, inner)
        except BaseException as exc:
            if not self.wait(context.__aexit__(type(exc), exc, exc.__traceback__)):
                raise
        else:
            self.wait(context.__aexit__(None, None, None))

    # The end.

    def close(self) -> None:
        """Cancel the work under way and end the thread. Idempotent."""
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """Like `close`, without waiting for the thread."""
        stopping, loop = self._stopping, self._loop
        assert stopping is not None and loop is not None
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                loop.call_soon_threadsafe(stopping.set)


class _PortalJob(Generic[T]):
    """Work that one thread waits for and the loop does."""

    def __init__(self, awaitable: Awaitable[T], outcome: Future[T]) -> None:
        self._awaitable = awaitable
        self._outcome = outcome
        self._task: asyncio.Task[T] | None = None
        # It carries, for example, the span of the caller.
        self._context = contextvars.copy_context()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(_awaited(self._awaitable), context=self._context)
        self._task.add_done_callback(self._settle)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self.drop()
            self._outcome.cancel()

    def drop(self) -> None:
        """Close a coroutine that will not be awaited, so that Python does not warn about it."""
        if asyncio.iscoroutine(self._awaitable):
            # The loop of a portal that was just closed may still be running it.
            with suppress(ValueError):
                self._awaitable.close()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._outcome.set_exception(
                ConnectionClosed("the client was closed meanwhile", may_have_run=True)
            )
        elif (error := task.exception()) is not None:
            self._outcome.set_exception(error)
        else:
            self._outcome.set_result(task.result())


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _closed(source: Any) -> None:
    # No caller is left whom an error could be told, and a lost connection has closed it as well.
    with suppress(ExecServerError):
        await source.aclose()


class Twin(Generic[T]):
    """A synchronous object whose asynchronous twin lives in the loop of a portal."""

    __slots__ = ("_inner", "_portal")

    def __init__(self, portal: Portal, inner: T) -> None:
        self._portal = portal
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Twin) and bool(other._inner == self._inner)

    def __hash__(self) -> int:
        return hash(self._inner)


def unwrapped(value: Any) -> Any:
    """The asynchronous twin of *value*, if it has one, or else *value* itself."""
    return value._inner if isinstance(value, Twin) else value


def wrapped_some(wrap: Callable[[Portal, T], W], portal: Portal, inner: T | None) -> W | None:
    """*inner*, wrapped by *wrap*; None if it is None."""
    return None if inner is None else wrap(portal, inner)


class _Opening(AbstractContextManager[W]):
    """A block, and an explanation for a program that forgets it."""

    def __init__(self, block: AbstractContextManager[W]) -> None:
        self._block = block

    def __enter__(self) -> W:
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._block.__exit__(kind, exc, traceback)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"no `{name}` here: this is a block, such as `with exec_server.sync.connect(url) as "
            "client:`; without a block use `client = exec_server.sync.open(url)`",
            name=name,
            obj=self,
        )


def opened(
    factory: Callable[[], AbstractAsyncContextManager[T]], wrap: Callable[[Portal, T], W]
) -> AbstractContextManager[W]:
    """Enter what *factory* makes, in its own portal; both end with the block."""
    return _Opening(_entered(factory, wrap))


@contextmanager
def _entered(
    factory: Callable[[], AbstractAsyncContextManager[T]], wrap: Callable[[Portal, T], W]
) -> Iterator[W]:
    portal = Portal()
    try:
        with portal.entered(portal.run(factory), wrap) as outer:
            yield outer
    finally:
        portal.close()


def opened_alone(
    factory: Callable[[], Awaitable[ExecServerClient]],
    wrap: Callable[[Portal, ExecServerClient], W],
) -> W:
    """The client that *factory* opens, in its own portal; both end when it is closed."""
    portal = Portal()
    portal.has_owner = True

    async def opened() -> ExecServerClient:
        client = await factory()
        client._warn_if_forgotten(portal.stop)
        return client

    try:
        return wrap(portal, portal.wait(opened()))
    except BaseException:
        portal.close()
        raise


def close_client(portal: Portal, client: ExecServerClient) -> None:
    """Close *client* and wait for its end, and for that of its portal if that is its own."""

    async def closed() -> None:
        await client.close()

    # After the end there is nothing to do.
    with suppress(ConnectionClosed):
        portal.wait(closed())
    if portal.has_owner:
        portal.close()
