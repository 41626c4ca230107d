"""Names that are kept closed, and that no operation goes around them."""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.files import operations
from exec_server.files.operations import changes
from tests.requirements import requirement

# Calls that make, change or remove a name, or change the attributes of a file by its name.
_CHANGES = (
    "mkdir makedirs rename renames replace symlink link unlink remove removedirs rmdir mknod "
    "mkfifo chown lchown truncate"
).split()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    changes.keep_closed([os.fsencode(tmp_path / ".git"), os.fsencode(tmp_path / "plain")])
    yield tmp_path
    changes.keep_closed([])


def refused(*words: object, **members: object) -> bool:
    call, *arguments = words
    assert callable(call)
    with pytest.raises(OSError) as raised:
        call(*arguments, **members)
    return raised.value.errno == errno.EROFS


@requirement("sandbox/files:nothing-made")
def test_a_closed_name_is_closed_in_every_spelling(closed):
    (closed / "sub").mkdir()
    (closed / "here").symlink_to(".")
    for name in (".git", ".GIT", "plain", "sub/../.git", "here/.git", "here/here/.Git", ".git/"):
        assert refused(changes.make_directory, os.fsencode(closed) + b"/" + name.encode())
    changes.make_directory(os.fsencode(closed / "PLAIN"))
    changes.make_directory(os.fsencode(closed / "sub" / ".git"))
    changes.make_directory(os.fsencode(closed / ".github"))


@requirement("sandbox/files:nothing-made")
def test_what_is_below_a_closed_name_is_closed_too(closed):
    (closed / ".git").mkdir()
    inside = os.fsencode(closed / ".git" / "x")
    assert refused(changes.open_file, inside, os.O_CREAT | os.O_WRONLY)
    assert refused(changes.remove_directory, os.fsencode(closed / ".git"))
    with pytest.raises(OSError), changes.attributes_of(os.fsencode(closed / ".git")):
        pass
    directory = os.open(closed / ".git", os.O_PATH)
    try:
        assert refused(changes.make_directory, b"x", dir_fd=directory)
        assert refused(changes.rename, b"a", b"b", src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


@requirement("sandbox/files:nothing-made")
def test_a_link_is_followed_to_where_it_leads(closed):
    (closed / "to-closed").symlink_to(".git")
    (closed / "to-open").symlink_to("new")
    flags = os.O_CREAT | os.O_WRONLY
    assert refused(changes.open_file, os.fsencode(closed / "to-closed"), flags)
    os.close(changes.open_file(os.fsencode(closed / "to-open"), flags))
    assert (closed / "new").exists()
    (closed / "circle").symlink_to("circle")
    with pytest.raises(OSError) as raised:
        changes.open_file(os.fsencode(closed / "circle"), flags)
    assert raised.value.errno == errno.ELOOP


@requirement("sandbox/files:nothing-made")
def test_no_operation_changes_a_name_in_another_way():
    found = []
    for path in Path(operations.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "os" and node.attr in _CHANGES and path.stem != "changes":
                    found.append(f"{path.name}:{node.lineno} os.{node.attr}")
    assert found == []


@requirement("sandbox/files:nothing-made")
def test_no_operation_creates_a_file_in_another_way():
    found = []
    for path in Path(operations.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.open":
                text = ast.unparse(node)
                if path.stem != "changes" and ("O_CREAT" in text or "REPLACE" in text):
                    found.append(f"{path.name}: {text}")
    # A new name that is drawn by lot.
    assert [text for text in found if "temporary" not in text] == []
