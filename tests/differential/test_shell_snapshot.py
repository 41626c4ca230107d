"""shellSnapshot beside the reference: as they are, and in a sandbox."""

from __future__ import annotations

import re
import shutil

import pytest

from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.support.comparing import ask, finished
from tests.support.sandbox_cases import context
from tests.support.wire import ENV, start_params

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(
        not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
    ),
]
PROFILE = """
echo noise
export E="two words" OVER=profile
alias ll='echo aliased'
greet() { echo "hello $1"; }
set -o noclobber
if (: > "$HOME/made-$$") 2>/dev/null; then export PLACE=free; else export PLACE=confined; fi
"""
SCRIPTS = [
    'greet you; echo "$E|$OVER|$PLACE|$0|$#"',
    # The reference forgets the aliases of sh.
    '[ "${0##*/}" = sh ] || eval ll',
    "set -o | grep noclobber | tr -d ' \\t'; ls /proc/self/fd | wc -l; pwd",
    "nosuch; echo $?",
    "[ -o login ] && echo login; case $- in *f*) echo f;; esac",
    "env | grep -Ev '^(_|SHLVL)=' | sort",
]
FILES = {"bash": ".bash_profile", "sh": ".profile", "zsh": ".zprofile"}


@pytest.mark.parametrize("sandbox", [None, context()], ids=["free", "confined"])
@pytest.mark.parametrize("name", FILES)
@requirement("snapshot/start:once", "snapshot/start:sandbox")
async def test_a_shell_is_restored_alike(both_confined, tmp_path, name, sandbox):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}")
    (tmp_path / FILES[name]).write_text(PROFILE)
    env = {**ENV, "HOME": str(tmp_path), "OVER": "request"}

    async def conversation(wire):
        said = []
        for number, script in enumerate(SCRIPTS):
            params = start_params(f"p{number}", [path, "-lc", script], env=env, sandbox=sandbox)
            params["shellSnapshot"] = {"scopeId": "s", "shell": {"name": name, "path": path}}
            started = await ask(wire, "process/start", params)
            done = await finished(wire, f"p{number}")
            # The number of lines before the command is not part of the contract.
            done["stderr"] = re.sub(rb"/sh: \d+:", b"/sh: N:", done.get("stderr", b""))
            said.append((started["sandboxType"], done))
        return said

    said = await both_confined.agree(conversation)
    place = "free" if sandbox is None else "confined"
    assert f"|request|{place}|{path}|0".encode() in said[0][1]["stdout"]
