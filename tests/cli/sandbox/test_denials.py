"""`--ask` and `--learn` at the prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.sandbox.test_processes import needs_bubblewrap
from tests.support.cli import MakeTerminal, finished

pytestmark = [
    pytest.mark.one_loop,
    needs_bubblewrap,
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("workspace", "outside"):
        (tmp_path / name).mkdir()
    return tmp_path / "workspace", tmp_path / "outside"


@requirement("denials/prompt:options")
async def test_without_a_terminal_the_options_are_printed(places):
    _, outside = places
    words = ["sandbox", "--ask", "--", "sh", "-c", f"echo x > {outside}/new; echo end"]
    done = await finished(*words, start_new_session=True)
    assert done.stdout == b"end\n"
    assert f"[the sandbox refused: write {outside}/new (outside the" in done.stderr
    # Every sandbox that can write includes /tmp.
    assert "[to allow it: --sandbox workspace-write" in done.stderr


@requirement("denials/prompt:options")
async def test_json_has_the_records(places):
    _, outside = places
    words = ["sandbox", "--ask", "-o", "json", "--", "sh", "-c", f"mkdir {outside}/new"]
    done = await finished(*words, start_new_session=True)
    facts = json.loads(done.stdout)
    (denial,) = facts["denials"]
    assert (denial["operation"], denial["target"]) == ("mkdir", f"{outside}/new")
    assert facts["options"][0] == "--sandbox"


@requirement("denials/prompt:hint")
async def test_a_failed_command_has_one_line_with_the_options(places):
    workspace, outside = places
    words = ("sandbox", "--sandbox", f"workspace-write={workspace}", "--", "sh", "-c")
    done = await finished(*words, "mkdir /etc/denied 2>/dev/null")
    assert done.status != 0
    option = f"--sandbox workspace-write={workspace}:/etc"
    assert done.stderr.splitlines() == [
        "[the sandbox refused: write /etc/denied (outside the writable directories); "
        f"to allow it: {option}]"
    ]
    # A command that has coped needs no wider sandbox, and one that failed for itself neither.
    assert (await finished(*words, f"mkdir {outside}/new 2>/dev/null; true")).stderr == ""
    assert (await finished(*words, "false")).stderr == ""


@requirement("denials/prompt:hint")
async def test_json_has_no_records_that_were_not_asked_for():
    done = await finished("sandbox", "-o", "json", "--", "sh", "-c", "mkdir /etc/new")
    facts = json.loads(done.stdout)
    assert facts["exitCode"] != 0
    assert not {"denials", "options"} & set(facts)


@requirement("denials/prompt:ask")
async def test_a_person_is_asked(places, terminal: MakeTerminal):
    _, outside = places
    script = f"echo one > {outside}/a; echo two > {outside}/b; echo end"
    shown = terminal("sandbox", "--ask", "--", "sh", "-c", script)
    await shown.until(f"allow write to {outside}/a? [once/session/always/never] ".encode())
    shown.type(b"what\n")
    await shown.until(
        b"[answer once (this call), session (such calls from now on), always (also of later "
    )
    await shown.until(f"allow write to {outside}/a? [once/session/always/never] ".encode())
    shown.type(b"once\n")
    await shown.until(f"allow write to {outside}/b? [once/session/always/never] ".encode())
    shown.type(b"never\n")
    await shown.until(b"end")
    await shown.until(f"[the sandbox refused: write {outside}/b ".encode())
    assert f"refused: write {outside}/a ".encode() not in shown.all
    assert await shown.status() == 0
    assert (outside / "a").read_text() == "one\n"
    assert not (outside / "b").exists()


@requirement("denials/prompt:ask")
async def test_ctrl_c_at_a_question_interrupts_the_command(places, terminal: MakeTerminal):
    _, outside = places
    shown = terminal("sandbox", "--ask", "--", "sh", "-c", f"echo one > {outside}/a; sleep 60")
    await shown.until(b"[once/session/always/never] ")
    shown.type(b"\x03")
    assert await shown.status() == 130
    assert not (outside / "a").exists()


@requirement("denials/prompt:learn")
async def test_the_narrowest_sandbox_is_learned(places):
    workspace, outside = places
    script = f"mkdir -p {outside}/a/b; echo x > {outside}/a/b/c; echo x > own; echo end"
    words = ("sandbox", "--learn", "--cwd", str(workspace))
    done = await finished(*words, "--", "sh", "-c", script)
    assert done.stdout == b"end\n"
    assert "[the narrowest sandbox for this: --sandbox workspace-write" in done.stderr
    assert (outside / "a" / "b" / "c").exists()
    done = await finished(*words, "-o", "json", "--", "sh", "-c", script)
    learned = json.loads(done.stdout)["learned"]
    assert learned["sandbox"].startswith("workspace-write")
    assert (learned["network"], learned["impossible"]) == (False, [])


@requirement("denials/prompt:learn")
async def test_learning_takes_no_sandbox():
    done = await finished("sandbox", "--learn", "--", "true")
    assert "[the narrowest sandbox for this: --sandbox read-only]" in done.stderr
    done = await finished("sandbox", "--learn", "--net", "on", "--", "true")
    assert (done.status, "'--learn' cannot be used with '--net" in done.stderr) == (2, True)
