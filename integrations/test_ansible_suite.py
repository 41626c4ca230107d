"""Playbooks on our connection plugin, with and without pipelining, and by OpenSSH through our door.

The tasks are those that every connection plugin has to master: non-ASCII words and files in both
directions, input for modules, scripts, statuses, and a reset.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLAYBOOK = """
- hosts: all
  gather_facts: true
  vars:
    here: "{{ playbook_dir }}"
  tasks:
    - name: a directory
      ansible.builtin.file: {path: "{{ there }}/汉语", state: directory, mode: "0755"}
    - name: a raw command
      ansible.builtin.raw: echo 汉语 && echo err >&2
      register: raw
    - ansible.builtin.assert: {that: ["'汉语' in raw.stdout", "'err' in raw.stderr", "raw.rc == 0"]}
    - name: a raw command that fails
      ansible.builtin.raw: exit 3
      register: failed
      failed_when: failed.rc != 3
    - name: a file with a name and content that are not ASCII
      ansible.builtin.copy: {content: "汉语-文件\\n", dest: "{{ there }}/汉语/文件", mode: "0640"}
    - name: its facts
      ansible.builtin.stat: {path: "{{ there }}/汉语/文件"}
      register: found
    - ansible.builtin.assert: {that: ["found.stat.mode == '0640'", "found.stat.size > 6"]}
    - name: back
      ansible.builtin.fetch: {src: "{{ there }}/汉语/文件", dest: "{{ here }}/back", flat: true}
    - name: a large file
      ansible.builtin.copy: {src: "{{ here }}/large", dest: "{{ there }}/large"}
    - name: a script
      ansible.builtin.script: "{{ here }}/script.sh one"
      register: script
    - ansible.builtin.assert: {that: ["script.stdout_lines == ['script one']"]}
    - name: a command with input
      ansible.builtin.command: {cmd: cat, stdin: "from stdin"}
      register: cat
    - ansible.builtin.assert: {that: ["cat.stdout == 'from stdin'"]}
    - name: a job in the background
      ansible.builtin.shell: sleep 600 & echo up
      register: background
    - ansible.builtin.assert: {that: ["background.stdout == 'up'"]}
    - ansible.builtin.meta: reset_connection
    - name: after the reset
      ansible.builtin.ping:
"""


@pytest.fixture(scope="module")
def collections(tmp_path_factory) -> Path:
    """A directory with the installed collection."""
    path = tmp_path_factory.mktemp("collections")
    words = [
        "collection",
        "install",
        "--offline",
        "-p",
        str(path),
        str(HERE / "ansible_collection"),
    ]
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    subprocess.run([galaxy, *words], check=True, capture_output=True)
    return path


def play(collections: Path, folder: Path, url: str, *words: str, **env: str):
    inventory = folder / "inventory"
    inventory.write_text(
        "box ansible_connection=exec_server.exec_server.exec_server "
        f"ansible_exec_server={url} ansible_python_interpreter={sys.executable}\n"
    )
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run(
        [program, "-i", inventory, *words[1:]],
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(collections),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_REMOTE_TMP": str(folder / "remote"),
            "LC_ALL": "C.UTF-8",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.mark.parametrize("pipelining", ["true", "false"])
def test_the_tasks_of_a_playbook(collections, server_url, tmp_path, pipelining):
    (tmp_path / "large").write_bytes(os.urandom(5 << 20))
    (tmp_path / "script.sh").write_text('#!/bin/sh\necho "script $1"\n')
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    (tmp_path / "there").mkdir()
    words = ("ansible-playbook", str(tmp_path / "play.yml"), "-e", f"there={tmp_path}/there")
    done = play(collections, tmp_path, server_url, *words, ANSIBLE_PIPELINING=pipelining)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "back").read_text() == "汉语-文件\n"
    assert (tmp_path / "there/large").read_bytes() == (tmp_path / "large").read_bytes()


def test_a_server_that_is_away_is_unreachable(collections, tmp_path):
    done = play(collections, tmp_path, "ws://127.0.0.1:1", "ansible", "all", "-m", "ping")
    assert done.returncode == 4 and "UNREACHABLE" in done.stdout


def test_become_works_without_a_password(collections, server_url, tmp_path):
    words = ("ansible", "all", "-m", "command", "-a", "id -un", "-b", "--become-method", "su")
    done = play(collections, tmp_path, server_url, *words)
    assert done.returncode == 0 and "root" in done.stdout, done.stdout + done.stderr


# Ansible's own ssh connection, through the stanza of `exec-server ssh-config`.

DOOR = HERE.parent / ".venv/bin/exec-server"


@pytest.fixture
def ssh_inventory(server_url, tmp_path) -> Path:
    """An inventory with one host, which OpenSSH reaches without an open port."""
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed")
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [DOOR, "ssh-config", "--linger", "5", f"box={server_url}"]
    stanza = subprocess.run(words, env=env, check=True, capture_output=True).stdout
    (tmp_path / "ssh_config").write_bytes(stanza)
    inventory: Path = tmp_path / "inventory"
    inventory.write_text(
        f"box ansible_ssh_common_args='-F {tmp_path}/ssh_config' "
        f"ansible_python_interpreter={sys.executable}\n"
    )
    return inventory


def play_by_ssh(inventory: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    folder = inventory.parent
    program = Path(sys.executable).with_name(words[0])
    with tempfile.TemporaryDirectory(prefix="cp-") as control:
        return subprocess.run(
            [program, "-i", inventory, *words[1:]],
            env={
                **os.environ,
                "XDG_STATE_HOME": str(folder / "state"),
                "ANSIBLE_SSH_CONTROL_PATH_DIR": control,
                "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=5s",
                "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
                "ANSIBLE_REMOTE_TMP": str(folder / "remote"),
                "LC_ALL": "C.UTF-8",
                **env,
            },
            capture_output=True,
            text=True,
            timeout=250,
        )


@pytest.mark.parametrize("transfer", ["sftp", "scp", "piped"])
def test_the_tasks_of_a_playbook_by_openssh(ssh_inventory, tmp_path, transfer):
    (tmp_path / "large").write_bytes(os.urandom(5 << 20))
    (tmp_path / "script.sh").write_text('#!/bin/sh\necho "script $1"\n')
    # By ssh a raw command has a terminal, where both outputs are one.
    (tmp_path / "play.yml").write_text(PLAYBOOK.replace("raw.stderr", "raw.stdout"))
    (tmp_path / "there").mkdir()
    words = ("ansible-playbook", str(tmp_path / "play.yml"), "-e", f"there={tmp_path}/there")
    # Ansible quotes names for the old protocol of scp, whose client then finds other names.
    env = {"ANSIBLE_SSH_TRANSFER_METHOD": transfer, "ANSIBLE_SCP_EXTRA_ARGS": "-OT"}
    done = play_by_ssh(ssh_inventory, *words, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "back").read_text() == "汉语-文件\n"
    assert (tmp_path / "there/large").read_bytes() == (tmp_path / "large").read_bytes()


def test_ping_and_copy_by_openssh(ssh_inventory, tmp_path):
    done = play_by_ssh(ssh_inventory, "ansible", "all", "-m", "ping")
    assert done.returncode == 0 and '"ping": "pong"' in done.stdout, done.stdout + done.stderr
    words = ("-m", "copy", "-a", f"content=hi dest={tmp_path}/copied mode=0600")
    done = play_by_ssh(ssh_inventory, "ansible", "all", *words)
    assert done.returncode == 0 and (tmp_path / "copied").read_text() == "hi", done.stdout
