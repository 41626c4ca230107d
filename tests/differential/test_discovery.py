"""Configuration, capabilities and shell snapshots: the same from the reference and from ours."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.comparing import Both, finished
from tests.support.files import uri
from tests.support.servers import reference_binary, start_reference, start_server
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop

CONFIG = """
model = "m1"
n = 3
arr = [1, "two", {{ x = 1 }}]
project_root_markers = [".git", "marker"]
[mcp_servers."a.b"]
url = "http://x"
headers = {{ A = "1", "b c" = "2" }}
[[tbl]]
a = 1
[tools]
web = true
[projects."{project}"]
trust_level = "trusted"
"""
PROJECT_CONFIG = """
notify = ["x"]
model = "pm"
[future]
rel = "./r"
[features]
respect_system_proxy = true
x = 1
"""
SKILLS = {
    "one": "---\nname: one\ndescription: First\nmetadata:\n  short-description: Short\n---\n",
    ".system/two": "---\ndescription: >\n  folded\n  text\n---\n",
    "none": "no front matter\n",
    "list": "---\nname: [x]\ndescription: d\n---\n",
    "long": f"---\nname: {'n' * 65}\ndescription: d\n---\n",
    "quoted": "---\ndescription: 'quoted: #x' # c\n---\n",
    "literal": "---\nname: lit\ndescription: |\n  a\n  b\nmetadata: {short-description: f}\n---\n",
    "colon": "---\ndescription: Use when: things\n---\n",
    "types": "---\nname: 12\ndescription: true\n---\n",
    "crlf": "---\r\ndescription: x\r\n---\r\n",
    "leading": "\n---\ndescription: x\n---\n",
    "escape": '---\ndescription: "caf\\u00e9 \\x41"\n---\n',
    "colon-in-list": "---\ndescription: d\nx:\n  - a: b: c\n---\n",
    "colon-at-end": "---\ndescription: Use when:\n---\n",
    "colon-continued": "---\ndescription: Use when: things\n  and more\n---\n",
    "colon-commented": "---\ndescription: 'it''s'\nx: it's: so # c\n---\n",
    "indented": "---\ndescription: |2\n   x\n  y\n---\n",
    "long-escape": '---\ndescription: "\\U0001F600"\n---\n',
    "twice": "---\ndescription: d\ndescription: e\n---\n",
    "twice-below": "---\ndescription: d\n"
    "metadata: {short-description: a, short-description: b}\n---\n",
    "twice-unread": "---\ndescription: d\nx: 1\nx: 2\n---\n",
    "control": "---\ndescription: a\x07b\n---\n",
    "ended": "---\ndescription: d\n...\n---\n",
}
POLICY = "policy:\n  allow_implicit_invocation: false\n"
POLICIES = {
    "plain": POLICY,
    "start": "---\n" + POLICY,
    "mark": "\ufeff" + POLICY,
    "comment": "# c\n---\n" + POLICY + "...\n",
    "capital": "policy:\n  allow_implicit_invocation: False\n",
    "capitals": "policy:\n  allow_implicit_invocation: TRUE\n",
    "no": "policy:\n  allow_implicit_invocation: no\n",
    "escape": 'x: "\\U0001F600"\n' + POLICY,
    "tabs": '{\n\t"policy": {"allow_implicit_invocation": false}\n}',
    "version": "%YAML 1.1\n---\n" + POLICY,
    "two": POLICY + "---\nx: y\n",
    "twice": POLICY + POLICY,
    "twice-below": POLICY + "  allow_implicit_invocation: true\n",
    "twice-in-braces": "policy: {products: [codex], products: [codex]}\n",
    "twice-unread": "x: 1\nx: 2\n" + POLICY,
    "colon": POLICY + "x: a: b\n",
    "control": "x: a\x07b\n" + POLICY,
    "list-key": "[a]: b\n" + POLICY,
}
AGENTS = (
    "policy:\n  allow_implicit_invocation: false\n  products: [CODEX]\n"
    "dependencies:\n  tools:\n    - type: mcp\n      value: v\n      oauth: {callback_port: 80}\n"
)
PROFILE = r"""
echo run >> ~/count; echo noise
export PV="two words" OVER=profile
greet() { echo "hello $1"; }
alias ll="echo aliased"
shopt -s expand_aliases extglob
set -o noclobber
xf() { echo exported; }; export -f xf
"""


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root: Path = tmp_path_factory.mktemp("machine")
    codex = root / "home" / ".codex"
    write(root / "home" / ".bash_profile", PROFILE)
    _write_config(root, codex)
    _write_capabilities(root, codex)
    return root


def _write_config(root: Path, codex: Path) -> None:
    project = root / "project"
    write(codex / "config.toml", CONFIG.format(project=project))
    write(project / ".git" / "HEAD", "x")
    write(project / ".codex" / "config.toml", PROJECT_CONFIG)
    write(project / "sub" / ".codex" / "config.toml", 'model = "sub"\n')
    write(root / "stranger" / "marker", "")
    write(root / "stranger" / ".codex" / "config.toml", "not [TOML")


def _write_capabilities(root: Path, codex: Path) -> None:
    for name, text in SKILLS.items():
        write(codex / "skills" / name / "SKILL.md", text)
    for name, text in POLICIES.items():
        write(codex / "skills" / "policies" / name / "SKILL.md", SKILLS["one"])
        write(codex / "skills" / "policies" / name / "agents" / "openai.yaml", text)
    write(codex / "skills" / "one" / "agents" / "openai.yaml", AGENTS)
    write(codex / "skills" / "types" / "agents" / "openai.yaml", "policy:\n  products: [x]\n")
    write(root / "home" / ".agents" / "skills" / "three" / "SKILL.md", SKILLS["one"])
    plugin = codex / "plugins" / "cache" / "market" / "plug"
    manifest = {"name": "named", "interface": {"displayName": " P "}, "mcpServers": "./m.json"}
    write(plugin / "2.0.0" / ".codex-plugin" / "plugin.json", "{}")
    write(plugin / "10.0.0" / ".codex-plugin" / "plugin.json", json.dumps(manifest))
    write(plugin / "10.0.0" / "m.json", "{}")
    write(plugin / "10.0.0" / "skills" / "s" / "SKILL.md", SKILLS["one"])
    write(plugin.parent / "bad" / "1" / ".codex-plugin" / "plugin.json", "nope")
    tree = root / "root"
    write(tree / ".codex-plugin" / "plugin.json", '{"mcpServers": "x", "apps": "./../a"}')
    write(tree / ".mcp.json", "{}")
    write(tree / "a" / "SKILL.md", "A")
    write(tree / "a" / "agents" / "openai.yaml", "y")
    write(tree / "a b" / "SKILL.md", "S")
    write(tree / "bytes" / "SKILL.md", b"\xff")
    write(tree.joinpath(*"1234567", "SKILL.md"), "7")
    write(tree.joinpath(*"123456", "SKILL.md"), "6")
    write(tree / "n" / ".cursor-plugin" / "plugin.json", "{}")
    os.symlink(tree, tree / "loop")
    os.symlink(tree / "a", tree / "z")


@pytest.fixture(scope="module")
def both_there(root: Path) -> Iterator[Both]:
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    env = {"HOME": str(root / "home"), "CODEX_HOME": str(root / "home" / ".codex")}
    with start_reference(binary, env=env) as reference, start_server(env=env) as ours:
        yield Both(reference.url, ours.url)


async def same(both: Both, method: str, params: Any) -> Any:
    async def conversation(wire: Wire) -> Any:
        answer = await wire.answer(await wire.request(method, params))
        answer.pop("id")
        return _comparable(answer)

    return await both.agree(conversation)


def _comparable(value: Any) -> Any:
    """TOML by what it says."""
    if isinstance(value, dict):
        return {k: tomllib.loads(v) if k == "toml" else _comparable(v) for k, v in value.items()}
    return [_comparable(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("cwd", ["project", "project/sub", "project/none", "stranger", "home"])
async def test_configuration(both_there, root, cwd):
    names = ["model", "n", "arr", "tbl", "notify", "features", "none"]
    paths = [[name] for name in names] + [["mcp_servers", "a.b"], ["tools", "x"], ["future", "rel"]]
    params = {"cwd": uri(root / cwd), "configPaths": paths, "requirementsPaths": [["x"]]}
    await same(both_there, "environmentConfig/read", params)


@pytest.mark.parametrize("paths", [[], [[]], [["model", "x"]], [["tools"], ["tools", "web"]]])
async def test_paths_of_configuration(both_there, root, paths):
    params = {"cwd": uri(root), "configPaths": paths, "requirementsPaths": []}
    await same(both_there, "environmentConfig/read", params)


async def test_installed_capabilities(both_there, root):
    result = (await same(both_there, "capabilities/discoverV2", {"cwd": uri(root)}))["result"]
    assert result["skills"] and result["plugins"] and result["warnings"]


async def test_roots_of_capabilities(both_there, root):
    paths = [uri(root / "root") + "/", uri(root / "root" / "n"), uri(root / "none")]
    roots = [{"id": "", "path": path} for path in [*paths, "file:///C:/x", uri("/dev/null")]]
    await same(both_there, "capabilityRoots/discoverV1", {"roots": roots})
    too_many = {"roots": [{"id": "", "path": paths[2]}] * 129}
    await same(both_there, "capabilityRoots/discoverV1", too_many)


async def test_shell_snapshots(both_there, root):
    scripts = [
        "greet you; ll; xf",
        "echo $PV $OVER $0 $#",
        "shopt -p extglob expand_aliases login_shell; set -o | grep noclobber",
        "exit 3",
        "echo ${BASH_VERSINFO:+x} $-",
        "nosuchcommand",
    ]

    async def conversation(wire: Wire) -> Any:
        said = []
        for number, script in enumerate(scripts):
            params = start_params(
                f"p{number}",
                ["/bin/bash", "-lc", script],
                env={},
                envPolicy={
                    "inherit": "all",
                    "ignoreDefaultExcludes": True,
                    "exclude": [],
                    "set": {},
                    "includeOnly": [],
                },
                shellSnapshot={"scopeId": "s", "shell": {"name": "bash", "path": "/bin/bash"}},
            )
            await wire.call("process/start", params)
            said.append(await finished(wire, f"p{number}"))
        return said

    await both_there.agree(conversation)
    # Once for each of the two.
    assert len((root / "home" / "count").read_text().split()) == 2
