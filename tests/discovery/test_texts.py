"""Texts of configuration: TOML that is written, YAML that is read, skills described by it."""

from __future__ import annotations

import datetime
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.discovery import toml_text, yaml_subset
from exec_server.discovery.skills import SkillError, agent_metadata, front_matter
from exec_server.discovery.yaml_subset import YamlError
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
        ("a: http://h:1/x", {"a": "http://h:1/x"}),
        ("a: use when: this", {"a": "use when: this"}),
        ("a: b # c\n# d\ne: 'f # g' # h", {"a": "b", "e": "f # g"}),
        ("a: null\nb: ~\nc:\nd: ''", {"a": None, "b": None, "c": None, "d": ""}),
        ("a: one\n  two\nb: c", {"a": "one two", "b": "c"}),
        ("a: |\n  x\n    y\n\n  z\nb: c", {"a": "x\n  y\n\nz\n", "b": "c"}),
        ("a: >-\n  x\n  y\n\n  z", {"a": "x y\n\nz"}),
        (r'a: "\x41\u00e9\n\"\0"', {"a": 'Aé\n"\0'}),
        ("'a b': 'it''s'", {"a b": "it's"}),
        ("-x: y", {"-x": "y"}),
    ],
)
def test_the_usual_yaml_is_read(text, value):
    assert yaml_subset.parse(text) == value


@requirement("discover/yaml:subset")
@pytest.mark.parametrize(
    "text",
    [
        "a: [b",
        "a: {b}",
        "a: 'b",
        'a: "b',
        "a: 'b' c",
        "\ta: b",
        "a: b\na: c",
        "a: &x b",
        "a: *x",
        "a: !tag b",
        "a: b\nnonsense",
        r'a: "\q"',
        "[" * 100,
        "- " * 100 + "a",
    ],
)
def test_other_yaml_is_refused(text):
    with pytest.raises(YamlError):
        yaml_subset.parse(text)


@requirement("discover/yaml:subset")
@pytest.mark.parametrize("text", ["a" + " " * 200_000 + "b", "a: " + "[" * 200_000, "- " * 200_000])
def test_a_long_line_costs_no_more_than_its_length(text):
    # Were it read in quadratic time, the test would not end in time.
    try:
        yaml_subset.parse(text)
    except YamlError:
        return


@requirement("discover/yaml:subset")
@given(st.text() | st.text("ab:-[]{},'\"\\ \n#|>&"))
def test_any_text_is_read_or_refused(text):
    try:
        yaml_subset.parse(text)
    except YamlError:
        return


@requirement("discover/installed:skills")
def test_front_matter_describes_a_skill():
    text = (
        "---\nname:  a  b\ndescription: |\n  one\n  two\nmetadata: {short-description: s}\n---\nx"
    )
    assert front_matter(text) == ("a b", "one two", "s")
    assert front_matter("---\r\ndescription: d\r\n---\r\n") == (None, "d", None)
    assert front_matter("---\nname: ''\ndescription: true\n---") == (None, "true", None)


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


@requirement("discover/installed:skills")
@pytest.mark.parametrize(
    "text",
    [
        None,
        "a: [",
        "[]",
        "policy:\n  allow_implicit_invocation: maybe\n",
        "policy:\n  products: [unknown]\n",
        "dependencies:\n  tools:\n    - type: mcp\n",
    ],
)
def test_a_broken_agents_file_is_ignored(text):
    assert agent_metadata(text) == (None, None)
