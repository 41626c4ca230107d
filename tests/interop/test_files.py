"""Patches, pictures and the files that Codex looks for by itself."""

from __future__ import annotations

import base64
import json
import zlib

from tests.interop.client import NARROW, Codex
from tests.interop.model import apply_patch, exec_command, view_image
from tests.interop.scenarios import scenario
from tests.requirements import requirement

PATCH = """\
*** Add File: sub/dir/new.txt
+created
*** Update File: a.txt
@@
-old line
+new line
*** Delete File: gone.txt
*** Update File: old.txt
*** Move to: moved.txt
@@
-move me
+moved
"""
BEFORE = {"a.txt": "old line\n", "gone.txt": "x\n", "old.txt": "move me\n"}
AFTER = {"sub/dir/new.txt": "created\n", "a.txt": "new line\n", "moved.txt": "moved\n"}


def given(codex: Codex) -> None:
    for name, text in BEFORE.items():
        (codex.work / name).write_text(text)


def present(codex: Codex) -> dict[str, str]:
    files = (path for path in codex.work.rglob("*") if path.is_file())
    return {path.relative_to(codex.work).as_posix(): path.read_text() for path in files}


def png(width: int, height: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + crc

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
    pixels = zlib.compress((b"\x00" + b"\x10\x80\xf0" * width) * height)
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@requirement("interop:patches")
@scenario("patch, danger-full-access", is_old=True)
async def test_a_patch_is_applied_without_a_sandbox(codex):
    given(codex)
    async with codex.exec() as model:
        output = await model.call(apply_patch(PATCH))
    assert "Success. Updated the following files:" in output
    assert present(codex) == AFTER
    if codex.executor.tap is not None:
        assert "fs/writeFile" in codex.executor.tap.methods()


@requirement("interop:patches")
@scenario("patch, workspace-write", is_old=True)
async def test_a_patch_is_applied_inside_the_workspace(codex):
    given(codex)
    async with codex.exec(sandbox="workspace-write") as model:
        output = await model.call(apply_patch(PATCH))
    assert "Success. Updated the following files:" in output
    assert present(codex) == AFTER


@requirement("interop:patches")
@scenario("patch, read-only", is_old=True)
async def test_a_patch_is_refused_where_nothing_may_be_written(codex):
    given(codex)
    async with codex.exec(sandbox="read-only") as model:
        output = await model.call(apply_patch(PATCH))
    assert "rejected" in output
    assert present(codex) == BEFORE


@requirement("interop:patches")
@scenario("patch that does not fit")
async def test_a_patch_whose_context_is_missing_changes_nothing(codex):
    given(codex)
    async with codex.exec() as model:
        output = await model.call(apply_patch("*** Update File: a.txt\n@@\n-not there\n+other\n"))
        missing = await model.call(apply_patch("*** Delete File: nowhere.txt\n"))
    assert "Failed to find expected lines" in output
    assert "No such file or directory" in missing
    assert present(codex) == BEFORE


@requirement("interop:patches")
@scenario("patch through a symbolic link out of the workspace")
async def test_a_patch_does_not_leave_the_workspace_through_a_link(codex):
    outside = codex.work.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("old line\n")
    (codex.work / "link").symlink_to(outside)
    async with codex.exec(sandbox="workspace-write", config=NARROW) as model:
        output = await model.call(
            apply_patch("*** Update File: link/a.txt\n@@\n-old line\n+new line\n")
        )
    assert "Success" not in output
    assert (outside / "a.txt").read_text() == "old line\n"


@requirement("interop:pictures")
@scenario("picture", is_old=True)
async def test_a_picture_is_shown_to_the_model(codex):
    picture = png(4, 3)
    (codex.work / "p.png").write_bytes(picture)
    async with codex.exec() as model:
        shown = await model.call(view_image(codex.work / "p.png"))
        missing = await model.call(view_image(codex.work / "none.png"))
    assert shown.startswith("data:image/png;base64,")
    assert base64.b64decode(shown.partition(",")[2])[:8] == picture[:8]
    assert "unable to locate image" in missing


@requirement("interop:large-files")
@scenario(
    "file of 13 MB, deleted by a patch",
    ways=("direct", "stdio"),
    fails={"reference, direct": "It answers in one frame, larger than its client takes."},
)
async def test_a_large_file_is_read_whole(codex):
    # More than 16 MiB in base64; the client reads what it deletes.
    (codex.work / "large.txt").write_text("a line of text\n" * 900_000)
    async with codex.exec() as model:
        output = await model.call(apply_patch("*** Delete File: large.txt\n"))
    assert "Success. Updated the following files:" in output
    assert not (codex.work / "large.txt").exists()


@requirement("interop:project-files")
@scenario("AGENTS.md and skills")
async def test_instructions_and_skills_of_the_executor_reach_the_model(codex):
    (codex.work / "AGENTS.md").write_text("SENTINEL-AGENTS\n")
    skill = codex.work / ".agents" / "skills" / "probe"
    skill.mkdir(parents=True)
    text = "---\nname: probe-skill\ndescription: SENTINEL-SKILL\n---\nbody\n"
    (skill / "SKILL.md").write_text(text)
    async with codex.exec() as model:
        told = json.dumps(await model.request())
    assert "SENTINEL-AGENTS" in told
    assert "SENTINEL-SKILL" in told


@requirement("interop:project-files")
@scenario("skill that appears later", ways=("direct",))
async def test_a_skill_made_by_a_command_is_told_with_the_next_request(codex):
    make = (
        "mkdir -p .agents/skills/late && printf '---\\nname: late-skill\\n"
        "description: SENTINEL-LATE\\n---\\nbody\\n' > .agents/skills/late/SKILL.md"
    )
    async with codex.exec() as model:
        await model.ask(exec_command(f"{make}; read -r _ < wait"))
        await codex.executor.tap.until_said("fs/missingChanged")
        (codex.work / "wait").write_text("go\n")
        told = json.dumps(await model.request())
    assert "SENTINEL-LATE" in told
