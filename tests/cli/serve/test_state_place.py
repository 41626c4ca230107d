"""Where a server keeps durable jobs: what its options and its environment say."""

from __future__ import annotations

from pathlib import Path

import pytest

from exec_server.cli.serve.serve_options import ServeOptions
from exec_server.cli.serve.state_place import state_directory
from exec_server.errors import ConfigurationError
from tests.cli.serve.conftest import REMOTE, parse
from tests.requirements import requirement
from tests.support.cli import finished

FIXED = ["ws://127.0.0.1:8765", "ws://0.0.0.0:8765", "unix:///run/x.sock", "unix://x.sock"]


def chosen(*words: str, **environ: str) -> Path | None:
    return state_directory(parse(*words), environ)


@pytest.fixture
def of_user(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


@requirement("cli/state:named")
def test_a_directory_can_be_named_or_refused(of_user, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert chosen("--state", "/a/b", **of_user) == Path("/a/b")
    assert chosen("--state", "x", **of_user) == tmp_path / "x"
    assert chosen("--state", "none", "--listen", FIXED[0], **of_user) is None
    named = {**of_user, "STATE_DIRECTORY": "/var/lib/box"}
    assert chosen("--state", "/a/b", "--listen", FIXED[0], **named) == Path("/a/b")


@requirement("cli/state:default")
@pytest.mark.parametrize("listen", FIXED)
def test_an_address_that_lasts_has_a_directory_of_its_own(listen, of_user, tmp_path):
    found = chosen("--listen", listen, **of_user)
    assert found is not None and found.parent == tmp_path / "exec-server" / "servers"
    assert found == chosen("--listen", listen, **of_user)
    others = {chosen("--listen", other, **of_user) for other in FIXED}
    assert len(others) == len(FIXED)
    # It is made with the first durable job.
    assert not found.exists()


@requirement("cli/state:default")
@pytest.mark.parametrize("listen", ["ws://127.0.0.1:0", "stdio", "stdio://"])
def test_an_address_that_does_not_last_has_none(listen, of_user):
    assert chosen("--listen", listen, **of_user) is None
    assert chosen("--listen", listen, STATE_DIRECTORY="/var/lib/box") is None


@requirement("cli/state:default")
def test_an_environment_of_a_registry_has_one_for_its_name(of_user):
    one = chosen(*REMOTE, **of_user)
    other = chosen("--remote", "http://h", "--environment-id", "f", **of_user)
    elsewhere = chosen("--remote", "http://i", "--environment-id", "e", **of_user)
    assert None not in (one, other, elsewhere) and len({one, other, elsewhere}) == 3
    # A server that is only registered keeps its jobs itself.
    assert chosen("forward", *REMOTE, "--connect", "ws://h:1", **of_user) is None


@requirement("cli/state:default")
def test_a_unit_of_systemd_has_its_own_directory(tmp_path):
    found = chosen("--listen", FIXED[0], STATE_DIRECTORY=f"{tmp_path}:/var/lib/other")
    assert found == tmp_path / "durable"


@requirement("cli/state:default")
def test_a_default_that_cannot_be_made_is_no_reason_not_to_start(tmp_path, caplog):
    (tmp_path / "file").touch()
    environ = {"XDG_STATE_HOME": str(tmp_path / "file")}
    assert chosen("--listen", FIXED[0], **environ) is None
    assert "cannot be made" in caplog.text
    # The operator sees it although only errors are logged.
    assert [record.__dict__.get("notice") for record in caplog.records] == ["no state"]


@requirement("cli/state:named")
@pytest.mark.parametrize(
    "words", [["--listen", "stdio"], ["forward", *REMOTE, "--connect", "ws://h:1"]]
)
def test_what_has_no_jobs_of_its_own_refuses_a_directory(words):
    with pytest.raises(ConfigurationError, match="--state"):
        chosen("--state", "/a", *words)


@requirement("cli/state:limits")
def test_the_bounds_of_journals_can_be_set():
    words = ["--state-job-bytes", "7", "--state-total-bytes", "9", "--state-keep", "2h"]
    limits = parse(*words).limits
    assert (limits.job_journal_bytes, limits.job_journal_total_bytes) == (7, 9)
    assert limits.job_keep_seconds == 7200
    for text, seconds in (("90", 90), ("1.5m", 90), ("3s", 3), ("2d", 172800)):
        assert parse("--state-keep", text).limits.job_keep_seconds == seconds


@requirement("cli/state:limits")
@pytest.mark.parametrize("text", ["", "x", "5w", "h", "-1", "1h30"])
def test_what_is_no_length_of_time_is_refused(text, refusal):
    assert "--state-keep <DURATION>" in refusal(f"--state-keep={text}")[0]


@requirement("cli/state:named")
def test_without_a_word_the_address_decides():
    assert parse().state is None and ServeOptions().state is None


@requirement("cli/state:named")
@pytest.mark.one_loop
async def test_the_command_says_what_is_wrong(tmp_path):
    done = await finished("--listen", "stdio", "--state", str(tmp_path))
    assert done.status == 1 and "a server on stdio ends with its client" in done.stderr
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below"):
        done = await finished("--state", str(place))
        assert done.status == 1
        assert f"the state directory {place} cannot be made or written to" in done.stderr
