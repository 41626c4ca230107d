"""Configuration texts: written TOML, read YAML, and the skills that it describes."""

from __future__ import annotations

import datetime
import subprocess
import sys
import tomllib
from unittest import mock

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exec_server.discovery import toml_text, yaml_text
from exec_server.discovery.skills import SkillError, agent_metadata, front_matter
from exec_server.discovery.yaml_text import YamlError, YamlMapping
from exec_server.protocol.environment import SkillPolicy, SkillTool
from tests.requirements import requirement

SCALARS = (
    st.text()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.dates()
    | st.times()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@requirement("config/toml:writes")
@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_reads_the_same(table):
    assert tomllib.loads(toml_text.dumps(table)) == table


@requirement("config/toml:writes")
def test_tables_become_sections_in_order():
    table = tomllib.loads('z = 1\na = {x = 1, "b c" = {y = 2}}\nl = [{p = 1}, {}]\n[e]\n')
    assert toml_text.dumps(table) == (
        'z = 1\n\n[a]\nx = 1\n\n[a."b c"]\ny = 2\n\n[[l]]\np = 1\n\n[[l]]\n\n[e]\n'
    )


ODD_WORDS = ("on", "012", "1_0", "2020-01-01")


@pytest.fixture(params=["CBaseLoader", "BaseLoader"])
def loader(request, monkeypatch):
    """Both of PyYAML's parsers: the one of libyaml and the one in Python."""
    chosen = getattr(yaml, request.param)
    monkeypatch.setattr(yaml_text, "_loader", lambda: chosen)


@requirement("discover/yaml:subset")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1", {"a": "1"}),
        ("a:\n  b: c\n  d:\n    - e\n    - f", {"a": {"b": "c", "d": ["e", "f"]}}),
        ("a:\n- b\n- c: d\n  e: f", {"a": ["b", {"c": "d", "e": "f"}]}),
        ("- - a\n  - b\n-\n  c: d", [["a", "b"], {"c": "d"}]),
        ("a: [x, 'y z', {k: v}, ]", {"a": ["x", "y z", {"k": "v"}]}),
        ("a: [x,\n  y]", {"a": ["x", "y"]}),
        ("a: {}", {"a": {}}),
        ("a: {b}", {"a": {"b": None}}),
        ("a: http://h:1/x", {"a": "http://h:1/x"}),
        ("a: b # c\n# d\ne: 'f # g' # h", {"a": "b", "e": "f # g"}),
        ("a: null\nb: ~\nc:\nd: ''", {"a": None, "b": None, "c": None, "d": ""}),
        ("a: one\n  two\nb: c", {"a": "one two", "b": "c"}),
        ("a: |\n  x\n    y\n\n  z\nb: c", {"a": "x\n  y\n\nz\n", "b": "c"}),
        ("a: >-\n  x\n  y\n\n  z", {"a": "x y\nz"}),
        (r'a: "\x41\u00e9\n\"\0"', {"a": 'Aé\n"\0'}),
        ("'a b': 'it''s'", {"a b": "it's"}),
        ("-x: y", {"-x": "y"}),
        ("---\na: b", {"a": "b"}),
        ("---\na: b\n...\n", {"a": "b"}),
        ("--- {a: b}", {"a": "b"}),
        ("# c\n---\na: b", {"a": "b"}),
        ("%YAML 1.1\n---\na: b", {"a": "b"}),
        ("\ufeffa: b", {"a": "b"}),
        ("\ufeff---\na: b", {"a": "b"}),
        ("a: |2\n   x\n  y\n", {"a": " x\ny\n"}),
        (r'a: "\U0001F600"', {"a": "\U0001f600"}),
        ("? a\n: b", {"a": "b"}),
        ("a: on\nb: 012\nc: 1_0\nd: 2020-01-01", dict(zip("abcd", ODD_WORDS, strict=True))),
        ("a: 'null'", {"a": "null"}),
    ],
)
def test_the_usual_yaml_is_read(loader, text, value):
    assert yaml_text.parse(text) == value


@requirement("discover/yaml:subset")
def test_json_that_is_indented_by_tabs_is_read_by_libyaml():
    assert yaml_text.parse('{\n\t"a": "b"\n}') == {"a": "b"}


@requirement("discover/yaml:subset")
@pytest.mark.parametrize(
    "text",
    [
        "a: [b",
        "a: 'b",
        'a: "b',
        "a: 'b' c",
        "\ta: b",
        "a: &x b",
        "a: *x",
        "a: !tag b",
        "a: b\nnonsense",
        r'a: "\q"',
        "[" * 100,
        "- " * 100 + "a",
        "[" * 40 + "]" * 40,
        "a: b\n---\nc: d",
        "a: b\n---\n",
        "a: b\n...\nc: [",
        "[a]: b",
        "? {a: b}\n: c",
        "x: &a [1]\ny: *a",
        "a: !!str b",
        "a: use when: this",
        "a: @b",
        "a: b\x07c",
        r'a: "\UFFFFFFFF"',
        "a: " + "b" * yaml_text.MAX_CHARS,
    ],
)
def test_other_yaml_is_refused(loader, text):
    with pytest.raises(YamlError):
        yaml_text.parse(text)


@requirement("discover/yaml:duplicate-keys")
def test_a_key_that_occurs_twice_is_an_error_when_it_is_asked_for(loader):
    for text in ("a: b\na: c\nd: e", "{a: b, a: c, d: e}"):
        found = yaml_text.parse(text)
        assert isinstance(found, YamlMapping)
        assert found.field("d") == "e"
        assert found.field("none") is None
        with pytest.raises(YamlError, match="`a` occurs twice"):
            found.field("a")


def test_yaml_is_loaded_with_the_first_discovery():
    script = (
        "import sys, exec_server.server.server;"
        "import exec_server.discovery.installed as installed;"
        "assert 'yaml' not in sys.modules;"
        "installed.front_matter('---\\ndescription: d\\n---'); assert 'yaml' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


@requirement("discover/yaml:subset")
@pytest.mark.parametrize("text", ["a" + " " * 200_000 + "b", "a: " + "[" * 200_000, "- " * 120_000])
def test_a_long_line_costs_no_more_than_its_length(loader, text):
    # In quadratic time this would take longer than the test may.
    try:
        yaml_text.parse(text)
    except YamlError:
        return


@requirement("discover/yaml:subset")
@given(st.text() | st.text("ab:-[]{},'\"\\ \n#|>&"))
def test_any_text_is_read_or_refused(text):
    for loader in (yaml.CBaseLoader, yaml.BaseLoader):
        with mock.patch.object(yaml_text, "_loader", return_value=loader):
            try:
                yaml_text.parse(text)
            except YamlError:
                continue


@requirement("discover/installed:skills")
def test_front_matter_describes_a_skill():
    text = (
        "---\nname:  a  b\ndescription: |\n  one\n  two\nmetadata: {short-description: s}\n---\nx"
    )
    assert front_matter(text) == ("a b", "one two", "s")
    assert front_matter("---\r\ndescription: d\r\n---\r\n") == (None, "d", None)
    assert front_matter("---\nname: ''\ndescription: true\n---") == (None, "true", None)
    assert front_matter("---\ndescription: |2\n   x\n  y\n---") == (None, "x y", None)
    assert front_matter('---\ndescription: "\\U0001F600"\n---') == (None, "\U0001f600", None)
    assert front_matter("---\ndescription: d\nx: 1\nx: 2\n---") == (None, "d", None)


@requirement("discover/installed:skills")
@pytest.mark.parametrize(
    ("line", "description"),
    [
        ("description: Use when: this", "Use when: this"),
        ("description: a: b: c # d", "a: b: c"),
        ("description: it's when: this", "it's when: this"),
        ('description: say "x: y" z: w', 'say "x: y" z: w'),
        ("description: d\nother:\n  - a: b: c", "d"),
        ("description: |\n  note: see: this\nother: a: b", "note: see: this"),
        ("a: b: c\r\ndescription: Use when: this\r", "Use when: this"),
    ],
)
def test_a_value_with_a_colon_needs_no_quotes_in_front_matter(loader, line, description):
    assert front_matter(f"---\n{line}\n---\n")[1] == description


@requirement("discover/installed:skills")
@pytest.mark.parametrize(
    "text",
    [
        "description: x",
        "\n---\ndescription: x\n---\n",
        "---\ndescription: x\n",
        "---\nname: x\n---\n",
        "---\nname: [x]\ndescription: x\n---\n",
        f"---\nname: {'n' * 65}\ndescription: x\n---\n",
        "---\n- description\n---\n",
        "---\ndescription: x\ndescription: y\n---\n",
        "---\ndescription: x\nmetadata: {short-description: a, short-description: b}\n---\n",
        "---\ndescription: Use when:\n---\n",
        "---\ndescription: Use when: this\n  and more\n---\n",
        "---\n" + "k: a: b\n" * 20 + "description: x\n---\n",
    ],
)
def test_other_front_matter_describes_none(text):
    with pytest.raises(SkillError):
        front_matter(text)


@requirement("discover/installed:skills")
def test_an_agents_file_has_policy_and_dependencies():
    text = (
        "policy:\n  allow_implicit_invocation: false\n  products: [Codex]\n"
        "dependencies:\n  tools:\n"
        "    - type: mcp\n      value: v\n      oauth: {callback_port: 80}\n"
        "    - type: half\n"
    )
    dependencies, policy = agent_metadata(text)
    assert policy == SkillPolicy(False, ["codex"])
    assert dependencies is not None
    assert dependencies.tools == [SkillTool("mcp", "v", oauth_callback_port=80)]


POLICY = "policy:\n  allow_implicit_invocation: false\n"


@requirement("discover/installed:policy-kept")
@pytest.mark.parametrize(
    "text",
    [
        POLICY,
        "---\n" + POLICY,
        "\ufeff" + POLICY,
        "\ufeff---\n" + POLICY,
        "# c\n---\n" + POLICY + "...\n",
        "x: |2\n   a\n  b\n" + POLICY,
        'x: "\\U0001F600"\n' + POLICY,
        '{\n  "policy": {"allow_implicit_invocation": false}\n}',
        "policy:\n  allow_implicit_invocation: False\n",
        "policy:\n  allow_implicit_invocation: FALSE\n",
        "x: 1\nx: 2\n" + POLICY,
    ],
)
def test_a_policy_is_not_lost(loader, text):
    assert agent_metadata(text) == (None, SkillPolicy(False, []))


@requirement("discover/installed:skills")
@pytest.mark.parametrize(
    "text",
    [
        None,
        POLICY + POLICY,
        POLICY + "  allow_implicit_invocation: true\n",
        POLICY + "x: a: b\n",
        "a: [",
        "[]",
        "policy:\n  allow_implicit_invocation: maybe\n",
        "policy:\n  products: [unknown]\n",
        "dependencies:\n  tools:\n    - type: mcp\n",
    ],
)
def test_a_broken_agents_file_is_ignored(text):
    assert agent_metadata(text) == (None, None)
