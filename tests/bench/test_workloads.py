"""Which workloads there are, and that those about files measure what they should."""

from __future__ import annotations

import pytest

from bench.catalogue import GROUPS, ORDINARY
from bench.floors import FLOOR, KERNEL
from bench.measure import Measurement, Part
from bench.options import OURS, parse
from bench.results import Results
from bench.servers import Conditions, Server
from bench.workload import Scale
from bench.workloads import FAMILIES, WORKLOADS, chosen
from tests.support.durable import is_running

pytestmark = pytest.mark.one_loop


def test_workloads_are_chosen_by_family_or_by_name():
    files = FAMILIES["files"]
    assert chosen("files") == files
    assert chosen("rpc,files,file_blocks") == (WORKLOADS["rpc"], *files)
    with pytest.raises(ValueError, match="no such workload: nothing"):
        chosen("files,nothing")


def test_a_part_of_the_run_can_be_asked_for():
    (part,) = parse(["--only", "files", "--server", OURS]).parts
    assert part.workloads == FAMILIES["files"]
    command = parse(["--only", "files", "--server", OURS]).command
    assert command == "make bench ARGS='--only files'"


def test_the_workloads_about_files_run(tmp_path):
    """On a server of ours, with the metrics that the catalogue has rows for."""
    (command,) = parse(["--server", OURS]).commands
    scale = Scale(0.002, tmp_path)
    rows = {(row.workload, row.metric) for group in GROUPS for row in group.rows}
    with Server(command, Conditions()) as server:
        for workload in FAMILIES["files"]:
            if not workload.name.startswith("echo"):
                figures = workload.run(server, scale)
                assert {(workload.name, metric) for metric in figures} <= rows
                assert all(figure >= 0 for figure in figures.values())
    # What was written is checked, and removed.
    assert not (tmp_path / "written").exists()


def test_the_workloads_about_durable_jobs_run_and_leave_no_process(tmp_path):
    """On a server of ours with a state directory, which is removed with everything that ran."""
    (command,) = parse(["--server", OURS]).commands
    rows = {(row.workload, row.metric) for group in GROUPS for row in group.rows}
    for workload in FAMILIES["durable"]:
        with Server(command, Conditions(), state=tmp_path / "state") as server:
            figures = workload.run(server, Scale(0.002, tmp_path))
            keepers = server.durable_keeper()
        assert {(workload.name, metric) for metric in figures} <= rows
        assert all(figure >= 0 for figure in figures.values())
        assert len(keepers) == 1
        assert not is_running(keepers[0].pid)
        assert not (tmp_path / "state").exists()


def test_the_workloads_about_doors_run_beside_ssh(tmp_path):
    """Without ssh and rsync, what needs them is left out."""
    (command,) = parse(["--server", OURS]).commands
    rows = {(row.workload, row.metric) for group in GROUPS for row in group.rows}
    for workload in FAMILIES["doors"]:
        with Server(command, Conditions(), state=tmp_path / "state") as server:
            figures = workload.run(server, Scale(0.002, tmp_path))
        assert {(workload.name, metric) for metric in figures} <= rows
        assert {"down", "up"} <= set(figures) or workload.name == "rsync_ssh"
        assert all(figure > 0 for figure in figures.values())


def test_a_server_without_state_is_not_asked_for_durable_jobs():
    ours, other = parse(["--server", OURS, "--server", "other=program {port}"]).commands
    assert (ours.state_option, other.state_option) == ("--state {state}", "")


def test_every_floor_does_the_work_of_its_workloads(tmp_path):
    """Each with its own server, or with the kernel alone, with metrics that the catalogue has."""
    names = set()
    for command in parse(["--server", KERNEL, "--server", FLOOR]).commands:
        names.add(command.name)
        assert command.workloads
        results = Results(
            baseline=command.name,
            subject=command.name,
            servers={command.name: ""},
            command="",
            rounds=1,
            scale=0.002,
            machine={},
        )
        chosen = tuple(WORKLOADS[name] for name in sorted(command.workloads))
        run = Measurement([command], results)
        run.run([Part(ORDINARY, Conditions(), chosen)])
        assert results.errors == []
        assert results.sections[ORDINARY].keys() == command.workloads
    assert names == {KERNEL, FLOOR}
