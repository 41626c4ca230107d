"""Texts that are a kind of `str`, such as the tagged strings of frameworks."""

from __future__ import annotations

from tests.client.conftest import is_ours
from tests.requirements import requirement


class Text(str):
    """Its str() is not what it contains."""

    def __str__(self) -> str:
        return "something else"


@requirement("client/arguments:words")
async def test_a_kind_of_str_counts_as_what_it_contains_everywhere(anywhere, tmp_path):
    """Frameworks pass tagged strings in every place."""
    path = Text(tmp_path / "file")
    await anywhere.fs.write_text(path, Text("content"))
    handle = await anywhere.fs.open(path, handle_id=Text("handle"))
    assert await anywhere.fs.read_block(handle, 0, 100) == (b"content", True)
    await anywhere.fs.close(handle)
    process = await anywhere.start(
        [Text("sh"), Text("-c"), Text("echo $0 $A")],
        process_id=Text("p"),
        arg0=Text("sh"),
        env={Text("A"): Text("a")},
        cwd=Text(tmp_path),
    )
    assert await process.communicate() == (b"sh a\n", b"")
    assert await anywhere.terminate(Text("p")) is False
    if is_ours(anywhere):
        assert (await (await anywhere.attach(Text("p"))).wait()) == 0
