"""The standard tests of langchain-tests for a sandbox."""

from __future__ import annotations

import tempfile

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from exec_server.integrations.deepagents import ExecServerSandbox
from integrations.lifetimes import check

# It is removed when the program ends.
ROOT = tempfile.TemporaryDirectory(prefix="deepagents-")


class TestExecServerSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, server_url):
        backend = ExecServerSandbox(server_url)
        yield backend
        backend.close()

    @property
    def sandbox_root_dir(self):
        return ROOT.name


def test_a_timeout_is_a_result_with_the_output_so_far(server_url):
    backend = ExecServerSandbox(server_url)
    late = backend.execute("echo so far; sleep 600", timeout=1)
    assert late.exit_code == 124
    assert late.output.startswith("so far\n")
    backend.close()


LIFETIME = """
import sys
from exec_server.integrations.deepagents import ExecServerSandbox
url, command = sys.argv[1:]
ExecServerSandbox(url).execute(command)
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)
