"""scp in its old protocol, which is the only one of OpenSSH before 9."""

from __future__ import annotations

import os

from tests.requirements import requirement


def copied(host, source, target, status=0):
    words = ("scp", *host.options, "-O", "-rq", "--")
    return host.call(*words, source, target, status=status).stderr.decode()


@requirement("ssh:scp-names")
def test_a_line_break_in_a_name_puts_no_file_elsewhere(host, tmp_path):
    (tmp_path / "far/sub").mkdir(parents=True)
    # To scp this would be the end of the directory, and one more file.
    (tmp_path / "far/sub/y\nabcd\x01\nE\nC0644 4 other").write_text("own\n")
    (tmp_path / "far/sub/two\nlines").write_text("content")
    (tmp_path / "near").mkdir()
    copied(host, f"build:{tmp_path}/far/sub", tmp_path / "near")
    assert os.listdir(tmp_path / "near") == ["sub"]
    names = {"two\\^Jlines", "y\\^Jabcd\x01\\^JE\\^JC0644 4 other"}
    assert set(os.listdir(tmp_path / "near/sub")) == names
    assert (tmp_path / "near/sub/two\\^Jlines").read_text() == "content"


@requirement("ssh:scp-names")
def test_an_error_about_a_name_with_a_line_break_is_one_line(host, tmp_path):
    (tmp_path / "far/sub").mkdir(parents=True)
    (tmp_path / "far/sub/y\nE\nC0644 4 other\nown\n").symlink_to("nowhere")
    (tmp_path / "near").mkdir()
    said = copied(host, f"build:{tmp_path}/far/sub", tmp_path / "near", status=1)
    assert "C0644 4 other" in said and len(said.splitlines()) == 1
    assert os.listdir(tmp_path / "near") == ["sub"] and not os.listdir(tmp_path / "near/sub")


@requirement("ssh:scp")
def test_old_scp_takes_paths_as_a_shell_does(host, tmp_path):
    (tmp_path / "file").write_text("content")
    home = host.ssh("build", "mktemp -d ~/old-scp-XXXXXX").stdout.decode().strip()
    name = os.path.basename(home)
    try:
        copied(host, tmp_path / "file", f"build:~/{name}/up")
        copied(host, f"build:~/{name}/up", tmp_path / "down")
        copied(host, f"build:$HOME/{name}/u[p]", tmp_path / "again")
        assert (tmp_path / "down").read_text() == (tmp_path / "again").read_text() == "content"
    finally:
        host.ssh("build", f"rm -r {home}")


@requirement("ssh:scp")
def test_old_scp_follows_links_there(host, tmp_path):
    (tmp_path / "far/sub").mkdir(parents=True)
    (tmp_path / "far/file").write_text("content")
    (tmp_path / "far/link").symlink_to("file")
    (tmp_path / "far/directory").symlink_to("sub")
    (tmp_path / "far/lost").symlink_to("nowhere")
    said = copied(host, f"build:{tmp_path}/far", tmp_path / "near", status=1)
    assert said.count("\n") == 1 and "lost" in said
    assert (tmp_path / "near/link").read_text() == "content"
    assert (tmp_path / "near/directory").is_dir()


@requirement("ssh:scp-names")
def test_old_scp_takes_every_name(host, tmp_path):
    names = [b"back\\slash", b"\xff latin", b"-dash", b"q'uo\"te", b"*"]
    (tmp_path / "near").mkdir()
    for name in names:
        (tmp_path / "near" / os.fsdecode(name)).write_bytes(name)
    copied(host, tmp_path / "near", f"build:{tmp_path}/far")
    copied(host, f"build:{tmp_path}/far", tmp_path / "back")
    assert sorted(os.listdir(os.fsencode(tmp_path / "back"))) == sorted(names)
    one = f"build:{tmp_path}/far/" + os.fsdecode(b"\xff*")
    copied(host, one, tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"\xff latin"
    assert "unexpected EOF" in copied(host, "build:'", tmp_path / "one", status=1)
