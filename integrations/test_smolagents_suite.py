"""The documented contract of smolagents' remote executors."""

from __future__ import annotations

import pytest
from smolagents import FinalAnswerTool, tool
from smolagents.utils import AgentError

from exec_server.integrations.smolagents import ExecServerExecutor
from integrations.lifetimes import check


@pytest.fixture
def executor(server_url):
    made = ExecServerExecutor(server_url)
    yield made
    made.cleanup()


def test_state_lasts_between_steps(executor):
    executor("x = 40")
    done = executor("print('hello')\nx + 2")
    assert (done.output, done.logs, done.is_final_answer) == (42, "hello\n", False)


def test_variables_and_tools_are_sent(executor):
    @tool
    def double(number: int) -> int:
        """Doubles.

        Args:
            number: what to double
        """
        return 2 * number

    executor.send_variables({"y": [1, 2]})
    executor.send_tools({"double": double, "final_answer": FinalAnswerTool()})
    assert executor("double(sum(y))").output == 6
    done = executor("final_answer({'a': (1, 2)})")
    assert done.is_final_answer and done.output == {"a": (1, 2)}


def test_an_error_has_the_traceback_and_leaves_the_state(executor):
    executor("x = 1")
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("print('before')\n1 / 0")
    assert executor("x").output == 1


def test_a_step_that_takes_too_long_is_ended(server_url):
    executor = ExecServerExecutor(server_url, time_limit=15)
    with pytest.raises(AgentError, match="longer than 15"):
        executor("import time; time.sleep(600)")
    assert executor("1 + 1").output == 2
    with pytest.raises(AgentError, match="has ended"):
        executor("import os; os._exit(1)")
    executor.cleanup()


LIFETIME = """
import sys
from exec_server.integrations.smolagents import ExecServerExecutor
url, command = sys.argv[1:]
ExecServerExecutor(url)(f"import subprocess; subprocess.run({command!r}, shell=True)")
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)
