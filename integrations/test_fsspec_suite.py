"""fsspec's own abstract suites: copy, get, put, open and pipe, on our file system."""

from __future__ import annotations

import shutil
import tempfile

import fsspec
import fsspec.tests.abstract as abstract
import pytest

from exec_server.integrations.fsspec import ExecServerFileSystem


class ExecServerFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, server_url):
        return ExecServerFileSystem(server=server_url)

    @pytest.fixture
    def fs_path(self):
        path = tempfile.mkdtemp(prefix="fsspec-")
        yield path
        shutil.rmtree(path)

    @pytest.fixture
    def supports_empty_directories(self):
        return True


class TestExecServerCopy(abstract.AbstractCopyTests, ExecServerFixtures):
    pass


class TestExecServerGet(abstract.AbstractGetTests, ExecServerFixtures):
    pass


class TestExecServerPut(abstract.AbstractPutTests, ExecServerFixtures):
    pass


class TestExecServerOpen(abstract.AbstractOpenTests, ExecServerFixtures):
    pass


class TestExecServerPipe(abstract.AbstractPipeTests, ExecServerFixtures):
    pass


def test_the_protocols_are_found_without_an_import():
    assert fsspec.get_filesystem_class("exec") is ExecServerFileSystem
    assert fsspec.get_filesystem_class("exec-server") is ExecServerFileSystem


class TestExecServerRemove(ExecServerFixtures):
    def test_what_is_missing_is_not_removed(self, fs, fs_target):
        with pytest.raises(FileNotFoundError):
            fs.rm(f"{fs_target}/missing")
        fs.pipe(f"{fs_target}/tree/sub/file", b"content")
        fs.rm([f"{fs_target}/tree", f"{fs_target}/tree/sub/file"], recursive=True)
        assert not fs.exists(f"{fs_target}/tree")
