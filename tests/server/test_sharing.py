"""Any number of watchers and one driver: `process/watch`, `process/control`, presence."""

from __future__ import annotations

import base64
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from exec_server.access.principal import Principal, Scope
from exec_server.server.sharing import shared_process
from tests.requirements import requirement
from tests.support.local import connected, server_with
from tests.support.tenants import serving
from tests.support.wire import Wire, decoded

LOST, REFUSED = -32040, -32041
# Prints every line that it reads, on a terminal that does not echo.
ECHO = ["sh", "-c", 'stty -echo 2>/dev/null; echo ready; while read -r line; do echo "$line"; done']


def blob(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Viewer:
    """A connection that watches the process `p` of another one."""

    def __init__(self, wire: Wire, watch_id: str) -> None:
        self.wire = wire
        self.id = watch_id
        # The answer to `process/watch`.
        self.result: dict[str, Any] = {}

    async def watch(self, **params: Any) -> dict[str, Any]:
        # A picture needs a model, whose process takes a moment to start.
        asked = {"processId": "p", "watchId": self.id, "pictures": False, **params}
        result: dict[str, Any] = await self.wire.call("process/watch", asked)
        return result

    async def control(self, action: str, **params: Any) -> dict[str, Any]:
        asked = {"processId": self.id, "action": action, **params}
        state: dict[str, Any] = await self.wire.call("process/control", asked)
        return state

    async def refused(self, action: str, **params: Any) -> dict[str, Any]:
        asked = {"processId": self.id, "action": action, **params}
        return await self.wire.error("process/control", asked)

    async def watched(self) -> dict[str, Any]:
        message = await self.wire.find(lambda m: m.get("method") == "process/watched")
        params: dict[str, Any] = message["params"]
        return params

    async def until(self, text: bytes) -> None:
        """Look on, and acknowledge what comes, until *text* was shown."""
        data = b""
        while text not in data:
            event = await self.watched()
            data += decoded(event) if "chunk" in event else b""
            await self.ack(event["seq"])

    async def ack(self, seq: int | None) -> None:
        params = {"processId": self.id, "seq": seq}
        await self.wire.send({"method": "process/ack", "params": params})

    async def changed(self) -> dict[str, Any]:
        message = await self.wire.find(lambda m: m.get("method") == "process/controlChanged")
        params: dict[str, Any] = message["params"]
        return params


@contextlib.asynccontextmanager
async def viewer(url: str, watch_id: str, **params: Any) -> AsyncIterator[Viewer]:
    async with connected(url, sharing=True, concurrentRequests=4) as wire:
        found = Viewer(wire, watch_id)
        found.result = await found.watch(**params)
        yield found


@pytest.fixture
async def owner(server) -> AsyncIterator[Wire]:
    """It has started `p`, which has printed its first line."""
    async with connected(server.url, sharing=True, concurrentRequests=4) as wire:
        await wire.start("p", ECHO, tty=True)
        assert decoded(await wire.event("p", "process/output")) == b"ready\r\n"
        yield wire


@requirement("sharing/watch:events", "sharing/presence:events")
async def test_a_watcher_sees_what_was_and_what_comes(server, owner):
    async with viewer(server.url, "w", kind="person", name="ann") as ann:
        assert (ann.result["tty"], ann.result["argv"]) == (True, ECHO)
        assert (ann.result["rows"], ann.result["cols"]) == (24, 80)
        await owner.write("p", b"one\n", "1")
        await ann.until(b"one")
        people = (await ann.control("state"))["participants"]
        assert [(each["kind"], each["drives"]) for each in people] == [
            ("agent", True),
            ("person", False),
        ]
    gone = await owner.find(
        lambda m: (
            m.get("method") == "process/presence"
            and len(m["params"]["control"]["participants"]) == 1
        )
    )
    assert gone["params"]["processId"] == "p"


@requirement("sharing/watch:picture")
async def test_one_who_comes_late_gets_the_screen_and_then_output(server, wire):
    script = r"printf '\033[?1049h\033[2;3Hlate\033]2;name\007'; read x; seq 1 60000; read x"
    await wire.start("p", ["sh", "-c", script], tty=True)
    await wire.output_until("p", b"name")
    async with viewer(server.url, "w", pictures=True, window=20_000) as late:
        screen = late.result["screen"]
        painted = base64.b64decode(screen["data"])
        assert b"\x1b[?1049h" in painted and b"late" in painted and b"name" in painted
        assert (screen["rows"], screen["cols"], screen["seq"]) == (24, 80, late.result["seq"])
        # It reads nothing while the program prints, and then needs no more than a picture.
        await wire.write("p", b"\n", "1")
        await wire.output_until("p", b"60000")
        size, data = 0, b""
        while b"60000" not in data:
            event = await late.watched()
            data = decoded(event) if "chunk" in event else b""
            if "screen" in event:
                data = base64.b64decode(event["screen"]["data"])
            size += len(data)
            await late.ack(event["seq"])
        assert size < 200_000


@requirement("sharing/control:driver")
async def test_only_the_driver_types_and_sizes(server, owner):
    async with viewer(server.url, "w", kind="person", name="ann") as ann:
        error = await ann.wire.error(
            "process/write", {"processId": "w", "chunk": blob(b"x\n"), "writeId": "1"}
        )
        assert error["code"] == LOST
        size = {"processId": "w", "rows": 20, "cols": 47}
        assert (await ann.wire.error("process/resize", size))["code"] == LOST
        assert (await ann.control("take"))["epoch"] == 2
        told = (await owner.find(lambda m: m.get("method") == "process/controlChanged"))["params"]
        assert (told["reason"], told["driver"]["name"], told["control"]["epoch"]) == (
            "taken",
            "ann",
            2,
        )
        error = await owner.error(
            "process/write", {"processId": "p", "chunk": blob(b"mine\n"), "writeId": "7"}
        )
        assert error["code"] == LOST
        assert await ann.wire.write("w", b"hers\n", "1") == "accepted"
        await ann.until(b"hers")
        await ann.control("giveBack")
        told = (await owner.find(lambda m: m.get("method") == "process/controlChanged"))["params"]
        assert (told["reason"], told["driver"]["id"]) == ("givenBack", "owner")
        assert told["control"]["seq"] >= 2
        assert await owner.write("p", b"mine\n", "8") == "accepted"
        await ann.until(b"mine")


@requirement("sharing/control:notice")
async def test_a_driver_that_was_displaced_hears_it_even_if_it_drives_again(server, owner):
    async with viewer(server.url, "w", kind="person") as ann:
        await ann.control("take")
        await ann.control("giveBack")
        chunk = {"processId": "p", "chunk": blob(b"stale\n"), "writeId": "1"}
        assert (await owner.error("process/write", chunk))["code"] == LOST
        assert await owner.write("p", b"fresh\n", "2") == "accepted"


@requirement("sharing/control:kinds")
async def test_an_agent_never_takes_from_a_person_unless_it_is_offered(server, owner):
    async with (
        viewer(server.url, "w", kind="person", name="ann") as ann,
        viewer(server.url, "v", kind="agent", name="bot") as bot,
    ):
        # From an agent it may.
        assert (await bot.control("take"))["epoch"] == 2
        await ann.control("take")
        assert (await bot.refused("take"))["code"] == REFUSED
        assert (await ann.refused("take", epoch=1))["code"] == REFUSED
        await ann.control("offer")
        while (await bot.changed())["reason"] != "offered":
            pass
        assert (await bot.control("take"))["epoch"] == 4
        # The person has it again when the agent leaves.
        await bot.wire.call("process/unwatch", {"watchId": "v"})
        while (told := await ann.changed())["reason"] != "left":
            pass
        assert told["driver"]["name"] == "ann"


@requirement("sharing/control:lost")
async def test_the_session_of_a_driver_that_is_lost_keeps_the_input_for_its_time(server, owner):
    async with viewer(server.url, "w", kind="person", name="ann") as ann:
        await ann.control("take")
        ann.wire.cut()
        await owner.find(
            lambda m: (
                m.get("method") == "process/presence"
                and not m["params"]["control"]["participants"][1]["connected"]
            )
        )
        chunk = {"processId": "p", "chunk": blob(b"x\n"), "writeId": "1"}
        assert (await owner.error("process/write", chunk))["code"] == LOST


@requirement("sharing/control:lost")
async def test_the_input_of_a_driver_whose_session_ends_goes_back():
    async with (
        server_with(detached_session_seconds=0.2) as server,
        connected(server.url, sharing=True) as owner,
    ):
        await owner.start("p", ECHO, tty=True)
        async with viewer(server.url, "w", kind="person") as ann:
            await ann.control("take")
            ann.wire.cut()
        reasons = []
        while "left" not in reasons:
            message = await owner.find(lambda m: m.get("method") == "process/controlChanged")
            reasons.append(message["params"]["reason"])


@requirement("sharing/presence:events")
async def test_a_session_that_never_said_it_understands_hears_nothing(server):
    async with connected(server.url) as stock:
        await stock.start("p", ECHO, tty=True)
        async with viewer(server.url, "w", kind="person") as ann:
            await ann.control("take")
            chunk = {"processId": "p", "chunk": blob(b"x\n"), "writeId": "1"}
            assert (await stock.error("process/write", chunk))["code"] == LOST
        methods = {message.get("method") for message in stock.unread}
        assert methods <= {"process/output"}


@requirement("sharing/watch:principals")
async def test_another_principal_finds_no_such_process(no_leaks):
    exec_only: frozenset[Scope] = frozenset(("exec",))
    async with (
        serving(Principal(name="a", may=exec_only)) as (running, tenants, _),
        connected(running.url) as first,
    ):
        await first.start("p", ECHO, tty=True)
        tenants.who = Principal(name="b", may=exec_only)
        async with connected(running.url) as second:
            error = await second.error("process/watch", {"processId": "p", "watchId": "w"})
            assert (error["code"], error["message"]) == (-32600, "unknown process id p")
        tenants.who = None
        async with viewer(running.url, "w") as admin:
            assert admin.result["tty"]


@requirement("sharing/control:principal-kind")
async def test_an_agent_cannot_call_itself_a_person(no_leaks):
    bot = Principal(name="bot", kind="agent")
    async with (
        serving(Principal(name="ann", kind="person")) as (running, tenants, _),
        connected(running.url) as person,
    ):
        await person.start("p", ECHO, tty=True, driver="person")
        tenants.who = bot
        async with viewer(running.url, "w", kind="person") as agent:
            kinds = [each["kind"] for each in agent.result["control"]["participants"]]
            assert kinds == ["person", "agent"]
            assert (await agent.refused("take"))["code"] == REFUSED
            assert (await agent.refused("take", kind="person"))["code"] == REFUSED
            assert (await agent.wire.call("session/whoami", {}))["kind"] == "agent"
            # A process of its own is not driven by a person either.
            await agent.wire.start("own", ECHO, tty=True, driver="person")
            own = await agent.wire.call("process/control", {"processId": "own", "kind": "person"})
            assert own["participants"][0]["kind"] == "agent"
            tenants.who = Principal(name="ann")
            async with viewer(running.url, "x", kind="person") as ann:
                # A principal without a kind is what its client says.
                assert (await ann.control("take"))["epoch"] == 2


@requirement("sharing/watch:events")
async def test_a_watcher_of_pipes_gets_what_is_retained_and_the_end(server):
    async with connected(server.url) as wire:
        await wire.start("p", ["sh", "-c", "echo out; echo err >&2; exit 3"])
        await wire.events_until_closed("p")
        async with viewer(server.url, "w") as late:
            data = {"stdout": b"", "stderr": b""}
            events = []
            while not (event := await late.watched()).get("closed"):
                events.append(event)
                if "chunk" in event:
                    data[event["stream"]] += decoded(event)
            assert data == {"stdout": b"out\n", "stderr": b"err\n"}
            assert [each["exitCode"] for each in events if "exited" in each] == [3]


@requirement("sharing/watch:slow")
async def test_a_slow_watcher_is_sent_no_more_than_its_window(server):
    async with connected(server.url, concurrentRequests=4) as wire:
        await wire.start("p", ["sh", "-c", "read x; head -c 3000000 /dev/zero"], pipeStdin=True)
        async with viewer(server.url, "w", window=10_000) as slow:
            await wire.write("p", b"\n", "1")
            await wire.events_until_closed("p")
            # The answer comes after all events before it.
            await slow.control("state")
            sent = [m for m in slow.wire.unread if m.get("method") == "process/watched"]
            before = sum(len(decoded(m["params"])) for m in sent if "chunk" in m["params"])
            assert before < 200_000
            # What is retained still comes, and the answer tells what is missing.
            got, dropped = 0, 0
            while not (event := await slow.watched()).get("closed"):
                got += len(decoded(event)) if "chunk" in event else 0
                dropped += event.get("droppedBytes", 0)
                await slow.ack(event["seq"])
            assert got > 500_000
            assert got + dropped == 3_000_000


@requirement("sharing/control:mixed")
async def test_hand_overs_at_random_mix_no_bytes(server):
    """No byte of one who does not drive reaches the program, and no write is split."""
    dice = random.Random(20)
    async with connected(server.url, sharing=True, concurrentRequests=8) as wire:
        await wire.start("p", ["cat"], pipeStdin=True)
        async with (
            viewer(server.url, "a", kind="person") as first,
            viewer(server.url, "b", kind="person") as second,
        ):
            accepted: list[bytes] = []
            count = 0

            async def type_all() -> None:
                nonlocal count
                for name, sender, label in (
                    ("o", wire, "p"),
                    ("a", first.wire, "a"),
                    ("b", second.wire, "b"),
                ):
                    count += 1
                    line = f"<{name}{count}:{name * dice.randint(1, 300)}>\n".encode()
                    params = {"processId": label, "chunk": blob(line), "writeId": str(count)}
                    answer = await sender.answer(await sender.request("process/write", params))
                    if "result" in answer:
                        assert answer["result"]["status"] == "accepted"
                        accepted.append(line)
                    else:
                        assert answer["error"]["code"] == LOST

            for _ in range(100):
                taker = dice.choice((first, second))
                epoch = (await taker.control("take"))["epoch"]
                await type_all()
                if dice.random() < 0.3:
                    assert (await taker.control("giveBack", epoch=epoch))["epoch"] == epoch + 1
                    await type_all()
            expected = b"".join(accepted)
            assert len(accepted) >= 100
            data = b""
            while len(data) < len(expected):
                data += decoded(await wire.event("p", "process/output"))
            assert data == expected


@requirement("sharing/control:sizes")
async def test_a_watcher_never_changes_the_size(server, wire):
    await wire.start("p", ECHO, tty=True)
    for number in range(20):
        async with viewer(server.url, f"w{number}", kind="person") as ann:
            size = {"processId": ann.id, "rows": 20, "cols": 47}
            assert (await ann.wire.error("process/resize", size))["code"] == LOST
    async with viewer(server.url, "w", kind="person") as last:
        assert (last.result["rows"], last.result["cols"]) == (24, 80)


@requirement("sharing/control:sizes")
async def test_the_size_goes_back_with_the_input(server, owner):
    async with viewer(server.url, "w", kind="person") as ann:
        await ann.control("take")
        for cols in range(40, 140):
            await ann.wire.request("process/resize", {"processId": "w", "rows": 20, "cols": cols})
        sizes: list[Any] = []
        while not sizes or sizes[-1] != [20, 139]:
            event = await ann.watched()
            sizes += [event["size"]] if "size" in event else []
        # A window that is dragged is told at most ten times in a second.
        assert len(sizes) <= 50
        await ann.control("giveBack")
        while (event := await ann.watched()).get("size") != [24, 80]:
            pass


async def test_a_process_does_not_get_the_id_of_a_watch(server, owner):
    async with viewer(server.url, "w") as ann:
        params = {"processId": "w", "argv": ["true"], "cwd": "/", "env": {}, "tty": False}
        refusal = await ann.wire.error("process/start", {**params, "arg0": None})
        assert "id of a watch" in refusal["message"]


@requirement("sharing/presence:bounded")
async def test_a_client_that_changes_its_name_again_and_again_is_told_of_together(monkeypatch):
    """Each change was told to all, with all: 300 of them kept a server busy for a minute."""
    async with server_with() as server, connected(server.url, sharing=True) as wire:
        await wire.start("p", ["cat"], pipeStdin=True)
        watches = [Viewer(wire, f"w{number}") for number in range(10)]
        for each in watches:
            await each.watch()
        # The next presence is told in an hour, or when the process is over.
        monkeypatch.setattr(shared_process, "_SECONDS_A_SEAT", 3600.0)
        for number in range(100):
            state = await watches[number % 10].control("state", name=f"name {number}")
        assert "name 99" in [each["name"] for each in state["participants"]]
        await wire.call("process/closeStdin", {"processId": "p"})
        told, names = 0, set[str]()
        while "name 99" not in names:
            message = await wire.find(lambda m: m.get("method") == "process/presence")
            told += 1
            names = {each["name"] for each in message["params"]["control"]["participants"]}
        # Those of the ten that came, and one for the hundred changes; each went to all.
        assert told < 150
