"""The remote suite: it accepts executors and relays that are right, and finds planted faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from exec_server.conformance.all_checks import CHECKS
from exec_server.conformance.check import CheckResult, ServerUnderTest, run_checks
from exec_server.conformance.remote import kit_frames
from exec_server.conformance.remote.kit_noise import KitHandshake, KitKeyPair, PublicKey, prologue
from exec_server.conformance.remote.kit_registry import ask_connect
from tests.conformance.remote_faults import REMOTE_FAULTS, limits_of
from tests.conformance.test_kit import BY_ID, wrong
from tests.interop.executors import Registry, running_registry
from tests.remote.conftest import executor
from tests.requirements import requirement
from tests.support.rendezvous import rendezvous
from tests.support.servers import OURS, reference_binary

pytestmark = pytest.mark.one_loop
# The pause takes ten seconds, and no other check needs it.
SUITE = [each for each in CHECKS if each.suite == "remote" and each.id != "noise.pause"]
VECTORS = json.loads((Path(__file__).parents[1] / "relay" / "noise_hybrid_ik.json").read_text())
_NAMES = ("x25519", "mlkem768")
_PLACE = ("environment_id", "executor_registration_id", "stream_id")


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@contextlib.contextmanager
def registered(registry: Registry, command: list[str], home: Path) -> Iterator[ServerUnderTest]:
    """An executor behind the registry, once it is online."""
    name = f"env-{uuid.uuid4().hex}"
    url = registry.url.replace("ws:", "http:")
    words = [*command, "--remote", url, "--environment-id", name]
    env = {**os.environ, "CODEX_API_KEY": registry.enrol, "CODEX_HOME": str(home)}
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env
    ) as process:
        try:
            headers = {"Authorization": f"Bearer {registry.harness}"}
            yield ServerUnderTest(f"noise+{url}/{name}", headers, 60.0)
        finally:
            process.terminate()


async def results(target: ServerUnderTest, *ids: str) -> list[CheckResult]:
    found: list[CheckResult] = []
    chosen = [BY_ID[each] for each in ids] if ids else SUITE
    await run_checks(chosen, target, on_result=found.append)
    return found


async def online(target: ServerUnderTest) -> None:
    """Wait until the registry knows the executor."""
    key = {"harness_public_key": KitKeyPair().public.as_json()}
    async with asyncio.timeout(60):
        while True:
            if (await ask_connect(target.url, target.headers, key, patience=60)).status == 200:
                return
            await asyncio.sleep(0.1)


@requirement("kit:remote")
async def test_our_executor_passes_behind_our_registry(registry, tmp_path):
    with registered(registry, OURS, tmp_path) as target:
        await online(target)
        found = await results(target)
        assert wrong(found) == []
        assert {each.verdict for each in found} == {"passed"}
        # Other suites run through the relay as well.
        assert wrong(await results(target, "output.streams", "session.resume")) == []


@requirement("kit:remote")
async def test_the_reference_passes_behind_our_registry(registry, tmp_path):
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    with registered(registry, [str(binary), "exec-server"], tmp_path) as target:
        await online(target)
        assert wrong(await results(target)) == []


@requirement("kit:remote-faults")
@pytest.mark.parametrize("name", REMOTE_FAULTS)
async def test_a_planted_fault_of_the_far_side_is_found(name, monkeypatch):
    fault = REMOTE_FAULTS[name]
    for module, attribute, value in fault.patches:
        monkeypatch.setattr(module, attribute, value)

    def tamper(direction: str, data: bytes) -> Iterable[bytes]:
        change = fault.down if direction == "down" else fault.up
        return [data] if change is None else change(data)

    async with rendezvous() as relay, executor(relay, limits=limits_of(fault)):
        relay.tamper = tamper
        target = ServerUnderTest(relay.noise_url(), {}, 2.0)
        (result,) = await results(target, fault.found_by)
    assert result.verdict == "failed"
    assert result.seen


@requirement("kit:remote-faults")
async def test_a_relay_without_a_fault_is_accepted():
    ids = {fault.found_by for fault in REMOTE_FAULTS.values()}
    # The relay of the tests does not know whose stream it is.
    ids -= {"stream.private", "noise.pause"}
    async with rendezvous() as relay, executor(relay):
        assert wrong(await results(ServerUnderTest(relay.noise_url(), {}, 60.0), *ids)) == []


@requirement("kit:remote")
@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["name"])
def test_the_keys_of_the_kit_are_those_of_recorded_handshakes(vector):
    static, ephemeral = (_keys(vector[f"initiator_{kind}"]) for kind in ("static", "ephemeral"))
    told = vector["responder_static"]
    executor_key = PublicKey(*(bytes.fromhex(told[f"{name}_public"]) for name in _NAMES))
    place = prologue(*(vector[name] for name in _PLACE))
    assert place.hex() == vector["prologue"]
    initiator = KitHandshake(static, executor_key, place)
    initiator.ephemeral = ephemeral
    # Message 1 was made with randomness that no library takes, so its end is taken as it was.
    steps = [each for each in vector["transcript"] if each["h"] == _after_message_1(vector)]
    initiator.symmetric.hash = bytes.fromhex(steps[-1]["h"])
    initiator.symmetric.chain = bytes.fromhex(steps[-1]["ck"])
    keys = initiator.finish(bytes.fromhex(vector["message2"]))
    assert initiator.symmetric.hash.hex() == vector["handshake_hash"]
    for record in vector["records"]:
        # Long records are not listed as a whole.
        if "plaintext" not in record or "ciphertext" not in record:
            continue
        plain, sealed = (bytes.fromhex(record[name]) for name in ("plaintext", "ciphertext"))
        if record["direction"] == "i2r":
            assert keys.seal(record["nonce"], plain) == sealed
        else:
            assert keys.open(record["nonce"], sealed) == plain


def _after_message_1(vector) -> str:
    found: str = vector["handshake_hash_after_message1"]
    return found


def _keys(told) -> KitKeyPair:
    seed = bytes.fromhex(told["mlkem768_seed_d"] + told["mlkem768_seed_z"])
    x25519 = X25519PrivateKey.from_private_bytes(bytes.fromhex(told["x25519_private"]))
    return KitKeyPair(x25519, MLKEM768PrivateKey.from_seed_bytes(seed))


@requirement("kit:remote")
def test_recorded_frames_are_read_and_written():
    for captured in VECTORS["captured_frames"]:
        # Long frames are not listed as a whole.
        if len(captured["hex"]) != 2 * captured["size"]:
            continue
        data = bytes.fromhex(captured["hex"])
        found = kit_frames.read_frame(data)
        assert found.body == captured["kind"]
        made = {
            "resume": lambda found: kit_frames.resume_frame(found.stream_id),
            "handshake": lambda f: kit_frames.handshake_frame(f.stream_id, f.payload),
            "reset": lambda f: kit_frames.reset_frame(f.stream_id, f.payload.decode()),
        }.get(found.body)
        if made is not None:
            assert made(found) == data


@requirement("kit:remote")
@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 20, b"\x08\x02", b"\x08\x01\x12\x05ab", b"\x08\x01"]
)
def test_bytes_that_are_no_frame_are_refused(data):
    with pytest.raises(ValueError, match=r"a frame|Protobuf|a number"):
        kit_frames.read_frame(data)
