"""execnet's tests with ssh gateways, and git and rsync many times, through `exec-server ssh`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integrations.foreign_suites import outcomes, sources

ROUNDS = 100
# It fails with OpenSSH, too: the interpreter over there has modules of its own.
KNOWN = "test_remote_exec_module_is_removed[main_thread_only-ssh]"


@pytest.fixture(scope="module")
def env(server_url, tmp_path_factory) -> dict[str, str]:
    """Variables with which `ssh` is our command, and `build` the server."""
    folder = tmp_path_factory.mktemp("ssh")
    words = shlex.join([sys.executable, "-m", "exec_server", "ssh"])
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (folder / "ssh").chmod(0o755)
    configured = f'[[environments]]\nid = "build"\nurl = "{server_url}"\n'
    (folder / "environments.toml").write_text(configured)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    ours = {"PATH": path, "CODEX_HOME": str(folder), "GIT_SSH_COMMAND": "ssh"}
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    return {**os.environ, **ours, **names, "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def test_gateways(env, record_property):
    gateway = f"ssh=build//python={sys.executable}"
    options = ["--gx", gateway, "-k", "ssh", "--timeout=120", "-p", "no:cacheprovider"]
    found = outcomes(["testing"], cwd=sources("execnet"), env=env, options=options)
    # Those for gevent are skipped: it is not installed.
    ran = {name: why for name, why in found.items() if why != "skipped"}
    failed = {name: why for name, why in ran.items() if why != "passed"}
    assert all(name.endswith(KNOWN) for name in failed), failed
    assert len(ran) - len(failed) >= 107
    record_property("passed elsewhere", len(ran) - len(failed))


@pytest.mark.timeout(1800)
def test_git_and_rsync_many_times(env, tmp_path):
    for program in ("git", "rsync"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")

    def run(*words: str | Path, cwd: Path = tmp_path) -> str:
        done = subprocess.run(
            words, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    store = tmp_path / "store.git"
    run("git", "init", "-q", "--bare", "-b", "main", store)
    for number in range(ROUNDS):
        clone = tmp_path / f"clone-{number}"
        run("git", "clone", "-q", f"build:{store}", clone)
        (clone / "file").write_text(f"{number}\n" * 1000)
        run("git", "checkout", "-q", "-B", "main", cwd=clone)
        run("git", "add", "file", cwd=clone)
        run("git", "commit", "-q", "-m", str(number), cwd=clone)
        run("git", "push", "-q", "origin", "main", cwd=clone)
        run("rsync", "-a", "-e", "ssh", f"build:{clone}/", tmp_path / "copy")
        assert (tmp_path / "copy/file").read_text() == (clone / "file").read_text()
        shutil.rmtree(clone)
    assert run("git", "--git-dir", store, "rev-list", "--count", "main").strip() == str(ROUNDS)
