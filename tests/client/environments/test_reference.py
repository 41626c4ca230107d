"""What the file may say is what the reference lets it say, in the same words."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from exec_server.cli import env
from exec_server.client.environments.environments_toml import load
from exec_server.errors import ConfigurationError
from tests.requirements import requirement
from tests.support.servers import ROOT, reference_binary

URL = 'url = "ws://127.0.0.1:1"'
PREFIX = "Error: exec-server protocol error: "


def entry(*lines: str, name: str = "box") -> str:
    return "\n".join(["[[environments]]", f'id = "{name}"', *lines, ""])


SAME_WORDS = [
    entry(URL, name=""),
    entry(URL, name=" box"),
    entry(URL, name="local"),
    entry(URL, name="None"),
    entry(URL, name="a.b"),
    entry(URL, name="x" * 65),
    entry(URL) + entry(URL),
    entry(),
    entry(URL, 'program = "p"'),
    entry(URL, "args = []"),
    entry(URL, 'cwd = "x"'),
    entry('program = " "'),
    entry('program = "p"', "connect_timeout_sec = 1"),
    entry('program = "p"', 'auth_bearer_token = "x"'),
    entry('url = "http://host"'),
    entry('url = " "'),
    'default = "other"',
    'default = " "',
    'default = "local"\ninclude_local = false',
]
# A fault of the grammar, which each parser tells in its own words.
ALSO_REFUSED = [
    "colour = 1",
    entry(URL, "colour = 1"),
    entry(URL, "connect_timeout_sec = -1"),
    entry(URL, "initialize_timeout_sec = nan"),
    entry(URL, 'connect_timeout_sec = "1"'),
    entry('url = "ws://"'),
    "[[environments]]",
    "default =",
]


@pytest.fixture(scope="module")
def binary() -> Path:
    found = reference_binary()
    if found is None:
        pytest.skip("the reference could not be installed")
    return found


def fault_of_the_reference(binary: Path, home: Path) -> str:
    done = subprocess.run(
        [binary, "exec", "--skip-git-repo-check", "hi"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "CODEX_HOME": str(home)},
        cwd=home,
        timeout=20,
        check=False,
    )
    [line] = [line for line in done.stderr.splitlines() if line.startswith(PREFIX)]
    assert done.returncode == 1
    return line.removeprefix(PREFIX)


@requirement("env/toml:ids", "env/toml:transport", "env/toml:default")
@pytest.mark.parametrize("text", SAME_WORDS)
def test_a_fault_has_the_same_words(binary, tmp_path, text):
    path = tmp_path / "environments.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {})
    assert str(caught.value) == f"{path}: {fault_of_the_reference(binary, tmp_path)}"


def shown_files(page: Path) -> list[str]:
    """The TOML in a page or in a help text that lists environments."""
    found = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    return [text for text in found if "[[environments]]" in text]


@requirement("env/toml:codex")
@pytest.mark.parametrize("page", ["docs/cli.md", "docs/client.md", "docs/guides/codex.md"])
def test_the_files_that_the_documentation_shows_are_accepted(binary, tmp_path, page):
    texts = shown_files(ROOT / page)
    assert texts
    for text in texts:
        # The environments must not be reached, and a fault is expected at the end only.
        text += entry(URL, "colour = 1", name="wrong-at-the-end")
        (tmp_path / "environments.toml").write_text(text)
        assert "`colour`" in fault_of_the_reference(binary, tmp_path)
        with pytest.raises(ConfigurationError, match="colour"):
            load(tmp_path, {})


@requirement("env/toml:codex")
def test_the_file_that_the_help_shows_is_accepted(binary, tmp_path):
    text = textwrap.dedent(env._EPILOG.partition("\n\n")[2].partition("\n\n")[0])
    assert "[[environments]]" in text
    text += "\n" + entry(URL, "colour = 1", name="wrong-at-the-end")
    (tmp_path / "environments.toml").write_text(text)
    assert "`colour`" in fault_of_the_reference(binary, tmp_path)


@requirement("env/toml:grammar", "env/toml:timeouts")
@pytest.mark.parametrize("text", ALSO_REFUSED)
def test_what_the_reference_refuses_we_refuse(binary, tmp_path, text):
    (tmp_path / "environments.toml").write_text(text)
    with pytest.raises(ConfigurationError):
        load(tmp_path, {})
    assert fault_of_the_reference(binary, tmp_path)
