"""Sandbox contexts, well-formed and not: the same codes from the reference and from ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from exec_server.errors import RpcError
from exec_server.protocol.sandbox import decoded
from exec_server.sandbox.policy import resolve
from tests.requirements import requirement
from tests.support.comparing import Both, ask
from tests.support.sandbox_cases import ACCEPTED, HERE, JUDGED, REFUSED
from tests.support.servers import ServerProcess, reference_binary, start_reference
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop

SHAPES = [*ACCEPTED, *(wire for wire, _ in REFUSED), *(case[0] for case in JUDGED)]
# Where a write is refused by the operating system, after the sandbox has let it through.
NOWHERE = "file:///no/such/directory/file"
OF_THE_SHAPE = (-32600, -32602)


@pytest.fixture(scope="module")
def reference_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The reference with a home outside of the temporary directory, where its helper works."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    home = tmp_path_factory.mktemp("home")
    other = tmp_path_factory.mktemp("tmp")
    with start_reference(binary, env={"CODEX_HOME": str(home), "TMPDIR": str(other)}) as running:
        yield running


async def codes(wire: Wire, context: Any, number: int) -> tuple[Any, Any, Any]:
    """What is wrong with *context* for a look at a file, for a change, and for a start."""
    looked = await ask(wire, "fs/getMetadata", {"path": HERE, "sandbox": context})
    changed = await ask(
        wire, "fs/writeFile", {"path": NOWHERE, "dataBase64": "", "sandbox": context}
    )
    started = await ask(
        wire, "process/start", start_params(f"p{number}", ["true"], sandbox=context)
    )
    return tuple(c if c in OF_THE_SHAPE else None for c in (looked, changed, started))  # type: ignore[return-value]


def ours(context: Any) -> tuple[int | None, int | None, int | None]:
    """The same of our own judgement, before anything is enforced."""

    def code(**how: Any) -> int | None:
        try:
            resolve(decoded(context), **how)
        except RpcError as exc:
            return exc.code
        return None

    return (
        code(for_process=False, is_read=True),
        code(for_process=False),
        code(for_process=True, cwd=b"/tmp"),
    )


@requirement("sandbox:grammar", "policy:validation")
async def test_every_context_is_judged_as_the_reference_does(reference_at_home):
    async with Wire(reference_at_home.url) as wire:
        await wire.initialize()
        theirs = [await codes(wire, shape, number) for number, shape in enumerate(SHAPES)]
    for shape, expected in zip(SHAPES, theirs, strict=True):
        assert ours(shape) == expected, shape


@pytest.mark.parametrize("method", ["fs/getMetadata", "process/start"])
@requirement("sandbox:grammar", "sandbox:never-ignored")
async def test_malformed_contexts_get_the_same_code(both: Both, method):
    async def conversation(wire: Wire) -> list[Any]:
        return [
            await ask(wire, method, {"path": HERE, "sandbox": shape})
            if method == "fs/getMetadata"
            else await ask(wire, method, start_params("p", ["true"], sandbox=shape))
            for shape, _ in REFUSED
        ]

    assert set(await both.agree(conversation)) == {-32602}


@requirement("sandbox:grammar")
async def test_what_is_missing_or_unknown_is_named_in_the_same_words(both: Both):
    named = [shape for shape, text in REFUSED if text.startswith(("missing", "unknown", "invalid"))]

    async def conversation(wire: Wire) -> list[Any]:
        return [
            (await wire.error("fs/getMetadata", {"path": HERE, "sandbox": shape}))["message"]
            for shape in named
        ]

    await both.agree(conversation)
