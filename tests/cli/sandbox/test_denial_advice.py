"""The options that would have allowed what a sandbox refused."""

from __future__ import annotations

import pytest

from exec_server.cli.sandbox.denial_advice import advice, lines
from exec_server.cli.sandbox.sandbox_options import READ_ONLY, Confinement
from exec_server.protocol.denials import Denial, DenialKind
from exec_server.sandbox.supervisor import judge
from tests.requirements import requirement

OWN = Confinement(kind="workspace-write")
APP = Confinement(kind="workspace-write", folders=("/srv/app",))


def denial(
    target: str, rule: str = judge.OUTSIDE_WRITABLE, kind: DenialKind = "write", count: int = 1
) -> Denial:
    return Denial("d1", kind, target, "open", rule, count=count)


SOCKET = denial("inet stream", judge.NO_NETWORK, "socket")
CALL = denial("ptrace", judge.SYSTEM_CALL, "syscall")


@pytest.mark.parametrize(
    ("denials", "given", "options"),
    [
        ([denial("/srv/x/new")], READ_ONLY, "--sandbox workspace-write=/srv/x"),
        ([denial("/srv/x/new")], OWN, "--sandbox workspace-write=.:/srv/x"),
        ([denial("/srv/x/new")], APP, "--sandbox workspace-write=/srv/app:/srv/x"),
        (
            [denial("/srv/x/deep/new"), denial("/srv/x/new"), denial("/var/a")],
            APP,
            "--sandbox workspace-write=/srv/app:/var:/srv/x",
        ),
        ([denial("/tmp/new")], READ_ONLY, "--sandbox workspace-write"),
        ([SOCKET], READ_ONLY, "--sandbox read-only --net on"),
        ([SOCKET, denial("/srv/x/a")], READ_ONLY, "--sandbox workspace-write=/srv/x --net on"),
        (
            [denial("/srv/app/.git/config", judge.PROTECTED_NAME)],
            APP,
            "--sandbox workspace-write=/srv/app --unprotected-metadata",
        ),
        ([CALL], APP, "--sandbox workspace-write=/srv/app"),
        ([denial("/srv/two words/a")], READ_ONLY, "--sandbox 'workspace-write=/srv/two words'"),
    ],
)
@requirement("denials/prompt:options")
def test_the_options_that_allow_it(denials, given, options):
    assert advice(denials, given).command_line == options


@requirement("denials/prompt:options")
def test_what_no_option_allows_is_told_apart():
    found = advice([CALL, denial("/etc/x/key", judge.OWN_PLACE)], APP)
    assert found.sandbox == APP
    assert found.impossible == (
        "open ptrace (refused system call)",
        "write /etc/x/key (file of the server)",
    )


@pytest.mark.parametrize(
    "target",
    [
        "/srv/a:/etc/f",
        "/srv/a:/f",
        "/srv/:/root/.ssh/f",
        "/srv/a:/etc/.git/config",
        "/f",
        "//f",
        "/*",
        "/.git/config",
    ],
)
@requirement("denials/prompt:hostile-names")
def test_a_name_that_the_command_has_chosen_widens_no_sandbox(target):
    for given in (READ_ONLY, OWN, APP):
        found = advice([denial(target)], given, own="/srv/own")
        assert found.sandbox == given
        assert found.impossible == (f"write {target} (outside the writable directories)",)
        both = advice([denial(target), denial("/srv/x/new")], READ_ONLY)
        assert both.sandbox.folders == ("/srv/x",)


@requirement("denials/prompt:options")
def test_many_denials_are_told_shortly():
    many = [denial(f"/srv/x/{number}\x1b[31m", count=2) for number in range(12)]
    told = list(lines(many, advice(many, READ_ONLY)))
    assert len(told) == 12
    assert told[0].endswith("write /srv/x/0\\x1b[31m (outside the writable directories), 2 times")
    assert told[10] == "the sandbox refused 2 other things"
    assert told[11] == "to allow it: --sandbox workspace-write=/srv/x"


@requirement("denials/prompt:learn")
def test_the_directory_of_the_command_is_left_out_of_what_is_learned():
    assert advice([denial("/srv/x/*")], READ_ONLY, own="/srv/x").command_line == (
        "--sandbox workspace-write"
    )
    # A name is protected right below a writable directory.
    deep = [denial("/srv/x/*"), denial("/srv/x/a/.git/*")]
    assert advice(deep, READ_ONLY, own="/").options[1:] == ["workspace-write=/srv/x"]
    near = [denial("/srv/x/*"), denial("/srv/x/.git/*")]
    assert advice(near, READ_ONLY, own="/srv/x").options[1:] == [
        "workspace-write",
        "--unprotected-metadata",
    ]
