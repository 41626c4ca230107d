"""The documented contract of mini-swe-agent's environments."""

from __future__ import annotations

import threading

import pytest
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted

from exec_server.integrations.mini_swe_agent import ExecServerMiniEnvironment
from integrations.lifetimes import check


@pytest.fixture
def environment(server_url, tmp_path):
    made = ExecServerMiniEnvironment(server=server_url, cwd=str(tmp_path), env={"A": "b"})
    yield made
    made.close()


def test_both_outputs_come_together_with_the_status(environment, tmp_path):
    answer = environment.execute({"command": "echo $A; pwd >&2; exit 3"})
    assert answer == {"output": f"b\n{tmp_path}\n", "returncode": 3, "exception_info": ""}
    assert environment.execute({"command": "pwd"}, cwd="/")["output"] == "/\n"


def test_a_timeout_has_the_output_so_far(environment):
    answer = environment.execute({"command": "echo so far; sleep 600"}, timeout=1)
    assert (answer["output"], answer["returncode"]) == ("so far\n", -1)
    assert "longer than 1" in answer["exception_info"]
    assert answer["extra"]["exception_type"] == "CommandTimeout"


def test_a_submission_is_raised(environment):
    with pytest.raises(Submitted) as caught:
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo diff"})
    assert caught.value.messages[0]["extra"]["submission"] == "diff\n"
    failed = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; exit 1"}
    assert environment.execute(failed)["returncode"] == 1


def test_threads_share_an_environment(environment):
    answers = {}

    def work(number: int) -> None:
        answers[number] = environment.execute({"command": f"echo {number}"})["output"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"{number}\n" for number in range(8)}


def test_the_agent_finds_it_by_the_name_of_its_class(server_url):
    name = "exec_server.integrations.mini_swe_agent.ExecServerMiniEnvironment"
    made = get_environment({"environment_class": name, "server": server_url, "timeout": 5})
    assert made.execute({"command": "echo hi"})["output"] == "hi\n"
    assert made.get_template_vars(x=1)["system"] == "Linux"
    assert made.serialize()["info"]["config"]["environment_type"] == name
    made.close()


LIFETIME = """
import sys
from exec_server.integrations.mini_swe_agent import ExecServerMiniEnvironment
url, command = sys.argv[1:]
ExecServerMiniEnvironment(server=url, timeout=600).execute({"command": command})
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)
