"""Which environments the file and the variables name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.client.environments import environments_toml
from exec_server.client.environments.environments_toml import Configuration, load
from exec_server.client.environments.kinds import (
    LocalEnvironment,
    ProgramEnvironment,
    RendezvousEnvironment,
    WebSocketEnvironment,
)
from exec_server.errors import ConfigurationError
from tests.requirements import requirement

HOME = Path("/the/home")
URL = 'url = "ws://host:1"'


def parse(text: str, env: dict[str, str] | None = None) -> Configuration:
    return environments_toml.parse(text, home=HOME, env=env or {})


def entry(*lines: str, name: str = "box") -> str:
    return "\n".join(["[[environments]]", f'id = "{name}"', *lines])


def one(*lines: str, env: dict[str, str] | None = None) -> Any:
    [environment] = parse("\n".join(["include_local = false", entry(*lines)]), env).environments
    return environment


# The file.


@requirement("env/toml:grammar")
def test_every_key_is_read():
    found = parse(
        """
        default = "build"
        include_local = false
        [[environments]]
        id = "build"
        url = " wss://build.example/path?x=1 "
        auth_bearer_token = "secret"
        skills = { required = true }
        connect_timeout_sec = 3
        initialize_timeout_sec = 0.5
        [[environments]]
        id = "by-ssh"
        program = " ssh "
        args = ["host", "exec-server", "--listen", "stdio"]
        env = { KEY = "VALUE" }
        cwd = "dir"
        initialize_timeout_sec = 60
        """
    )
    build, by_ssh = found.environments
    assert isinstance(build, WebSocketEnvironment) and isinstance(by_ssh, ProgramEnvironment)
    assert (build.id, build.url) == ("build", "wss://build.example/path?x=1")
    assert build.token is not None and build.token() == "secret"
    assert (build.connect_timeout, build.initialize_timeout) == (3, 0.5)
    assert by_ssh.argv == ("ssh", "host", "exec-server", "--listen", "stdio")
    assert (by_ssh.env, by_ssh.cwd) == ({"KEY": "VALUE"}, "/the/home/dir")
    assert by_ssh.initialize_timeout == 60
    assert found.default == "build"


@requirement("env/toml:grammar")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("colour = 1", "unknown field `colour`"),
        (entry(URL, "colour = 1"), "unknown field `colour`"),
        ("[[environments]]", "missing required field `id`"),
        ("default = 1", "Expected `str"),
        ("include_local = 1", "Expected `bool`"),
        (entry('program = "p"', "args = [1]"), "Expected `str`"),
        ("nonsense", "Expected"),
    ],
)
def test_what_is_not_the_grammar_is_a_fault(text, fault):
    with pytest.raises(ConfigurationError, match=fault):
        parse(text)


@requirement("env/toml:ids")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "environment id cannot be empty"),
        (" box", "environment id ` box` must not contain surrounding whitespace"),
        ("local", "environment id `local` is reserved"),
        ("None", "environment id `None` is reserved"),
        ("a b", "must contain only ASCII letters, numbers, '-' or '_'"),
        ("é", "must contain only ASCII letters, numbers, '-' or '_'"),
        ("x" * 65, "cannot be longer than 64 characters"),
    ],
)
def test_an_id_that_is_none_is_a_fault(name, fault):
    with pytest.raises(ConfigurationError) as caught:
        parse(entry(URL, name=name))
    assert fault in str(caught.value)


@requirement("env/toml:ids")
def test_an_id_may_not_come_twice():
    with pytest.raises(ConfigurationError, match="environment id `box` is duplicated"):
        parse(entry(URL) + "\n" + entry(URL))


@requirement("env/toml:ids")
@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_any_other_id_is_one(name):
    if name != "local" and name.lower() != "none":
        assert [each.id for each in parse(entry(URL, name=name)).environments] == ["local", name]


@requirement("env/toml:transport")
@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ((), "environment `box` must set exactly one of url or program"),
        ((URL, 'program = "p"'), "environment `box` must set exactly one of url or program"),
        ((URL, "args = []"), "environment `box` args, env, and cwd require program"),
        ((URL, "env = {}"), "environment `box` args, env, and cwd require program"),
        ((URL, 'cwd = "x"'), "environment `box` args, env, and cwd require program"),
        (('program = " "',), "environment `box` program cannot be empty"),
        (
            ('program = "p"', "connect_timeout_sec = 1"),
            "environment `box` connect_timeout_sec requires url",
        ),
        (
            ('program = "p"', 'auth_bearer_token = "secret"'),
            "environment `box` auth_bearer_token requires url",
        ),
        (('url = "http://host"',), "environment url `http://host` must use ws:// or wss://"),
        (('url = "ws://"',), "environment url `ws://` is invalid: it names no host"),
        (
            ('url = "ws://user:hidden@host"',),
            "an environment url cannot carry credentials; set a bearer token",
        ),
        (('url = " "',), "environment url cannot be empty"),
    ],
)
def test_an_environment_has_one_way_to_it(lines, fault):
    with pytest.raises(ConfigurationError) as caught:
        parse(entry(*lines))
    assert str(caught.value) == fault


@requirement("env/toml:timeouts")
@pytest.mark.parametrize("value", ["-1", "-0.1", "inf", "nan", '"1"', "true"])
@pytest.mark.parametrize("key", ["connect_timeout_sec", "initialize_timeout_sec"])
def test_a_timeout_is_a_number_of_seconds(key, value):
    with pytest.raises(ConfigurationError):
        parse(entry(URL, f"{key} = {value}"))


@requirement("env/toml:timeouts")
def test_timeouts_have_defaults():
    environment = one(URL)
    assert (environment.connect_timeout, environment.initialize_timeout) == (10, 10)


@requirement("env/toml:default")
@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("", "local"),
        ("include_local = false", None),
        ('default = "NONE"', None),
        ('default = "local"', "local"),
        ('default = " box "\n' + entry(URL), "box"),
        (entry(URL), "local"),
        ("include_local = false\n" + entry(URL), None),
    ],
)
def test_there_is_a_default_or_none(text, default):
    assert parse(text).default == default


@requirement("env/toml:default")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('default = "other"', "default environment `other` is not configured"),
        ('default = " "', "default environment id cannot be empty"),
        (
            'default = "local"\ninclude_local = false',
            "default environment `local` is not configured",
        ),
    ],
)
def test_a_default_must_exist(text, fault):
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert str(caught.value) == fault


# Tokens.


@requirement("env/toml:tokens")
def test_a_token_stands_in_a_variable():
    env = {"BOX_TOKEN": " secret\n"}
    environment = one(URL, 'auth_bearer_token_env = "BOX_TOKEN"', env=env)
    assert environment.token() == "secret"
    env.clear()
    with pytest.raises(ConfigurationError, match="BOX_TOKEN is not set"):
        environment.token()


@requirement("env/toml:tokens")
def test_a_token_stands_in_a_file_of_its_own(tmp_path):
    path = tmp_path / "token"
    environment = one(URL, f'auth_bearer_token_file = "{path}"')
    with pytest.raises(ConfigurationError, match="No such file"):
        environment.token()
    path.write_text("secret\n")
    assert environment.token() == "secret"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        environment.token()
    path.write_bytes(b"x" * 100_000)
    with pytest.raises(ConfigurationError, match="longer than"):
        environment.token()


@requirement("env/toml:tokens")
def test_a_token_has_one_place():
    with pytest.raises(ConfigurationError, match="must set only one of auth_bearer_token and"):
        one(URL, 'auth_bearer_token = "x"', 'auth_bearer_token_env = "Y"')


@requirement("env/toml:tokens")
def test_secrets_are_not_shown():
    secrets = [
        one('url = "ws://host/?sig=hidden"', 'auth_bearer_token = "hidden"'),
        one('program = "p"', 'env = { KEY = "hidden" }'),
        load(HOME, {**RENDEZVOUS, "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "hidden"}),
    ]
    assert "hidden" not in repr(secrets)
    with pytest.raises(ConfigurationError) as caught:
        one(URL, 'auth_bearer_token = "hidden"', "auth_bearer_token_env = 1")
    assert "hidden" not in str(caught.value)


# Files and variables together.

RENDEZVOUS = {
    "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": "https://registry.example",
    "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "env-1",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "token",
}


@requirement("env/variable")
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, Configuration((LocalEnvironment("local"),), "local")),
        ("  ", Configuration((LocalEnvironment("local"),), "local")),
        (" NoNe ", Configuration((), None)),
        (
            " ws://host:1 ",
            Configuration((WebSocketEnvironment("remote", "ws://host:1"),), "remote"),
        ),
    ],
)
def test_the_variable_says_what_there_is(tmp_path, value, found):
    assert load(tmp_path, {} if value is None else {environments_toml.URL_VARIABLE: value}) == found


@requirement("env/variable")
def test_the_variable_must_be_a_websocket(tmp_path):
    with pytest.raises(ConfigurationError, match="`tcp://x` must use ws:// or wss://"):
        load(tmp_path, {environments_toml.URL_VARIABLE: "tcp://x"})


@requirement("env/precedence")
def test_the_file_wins_over_the_variable_and_the_registry_over_both(tmp_path):
    env = {environments_toml.URL_VARIABLE: "ws://variable"}
    assert load(tmp_path, env).default == "remote"
    (tmp_path / "environments.toml").write_text(entry(URL))
    assert [each.id for each in load(tmp_path, env).environments] == ["local", "box"]
    [environment] = load(tmp_path, {**env, **RENDEZVOUS}).environments
    assert isinstance(environment, RendezvousEnvironment)


@requirement("env/rendezvous")
def test_the_registry_is_named_by_three_variables():
    found = load(HOME, RENDEZVOUS)
    [environment] = found.environments
    assert isinstance(environment, RendezvousEnvironment)
    assert (environment.id, found.default) == ("remote", "remote")
    assert environment.registry_url == "https://registry.example"
    assert environment.environment_id == "env-1" and environment.token() == "token"


@requirement("env/rendezvous")
@pytest.mark.parametrize("missing", RENDEZVOUS)
def test_two_of_the_three_variables_are_a_fault(missing):
    env = {name: value for name, value in RENDEZVOUS.items() if name != missing}
    with pytest.raises(ConfigurationError, match=f"{missing} must be set"):
        load(HOME, env)


@requirement("env/toml:unreadable")
def test_a_file_that_cannot_be_read_is_a_fault(tmp_path):
    path = tmp_path / "environments.toml"
    path.mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot read `.*environments\.toml`: Is a dir"):
        load(tmp_path, {})
    path.rmdir()
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load(tmp_path, {})
    path.write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(ConfigurationError, match="longer than"):
        load(tmp_path, {})
    path.write_text("default =")
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {})
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@requirement("env/toml:unreadable")
def test_the_home_is_named_by_a_variable():
    assert environments_toml.home_directory({"CODEX_HOME": "/x", "HOME": "/y"}) == Path("/x")
    assert environments_toml.home_directory({"HOME": "/y"}) == Path("/y/.codex")


@requirement("env/toml:grammar")
@given(st.text(max_size=60))
def test_no_text_does_worse_than_a_fault(text):
    try:
        parse(text)
    except ConfigurationError:
        pass
