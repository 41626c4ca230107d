"""The parsers of a skill's two files: `SKILL.md` and `agents/openai.yaml`."""

from __future__ import annotations

import re

from exec_server.discovery.yaml_text import Value, YamlError, YamlMapping, parse
from exec_server.protocol.environment import SkillDependencies, SkillPolicy, SkillTool

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
# A line whose plain value contains a colon and a blank. YAML refuses it, but people write it.
_COLON_IN_VALUE = re.compile(
    r"""(?P<key>\s*+(?:-\s++)*+[\w-][^:]*+:\s++)(?P<value>[^\s'"#&*!|>%@`\[\]{},?-].*:\s.*)"""
)
_COMMENT = re.compile(r"\s#.*")
# Each repair parses the text again.
_MAX_REPAIRS = 8
_BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_PRODUCTS = {"codex", "chatgpt", "atlas"}
_NAME_CHARS = 64
_MAX_PORT = 65535


class SkillError(ValueError):
    """Front matter that describes no skill."""


def front_matter(text: str) -> tuple[str | None, str, str | None]:
    """Name, description and short description. Raises SkillError."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        raise SkillError("no front matter")
    try:
        fields = _parse_repaired(match[1])
        if not isinstance(fields, YamlMapping):
            raise SkillError("the front matter is not a mapping")
        return _described(fields)
    except YamlError as exc:
        raise SkillError(str(exc)) from exc


def _described(fields: YamlMapping) -> tuple[str | None, str, str | None]:
    description = _one_line(fields.field("description"))
    name = _one_line(fields.field("name"))
    if isinstance(fields.field("name"), list | dict):
        raise SkillError("the name is not text")
    if description is None:
        raise SkillError("there is no description")
    if name is not None and len(name) > _NAME_CHARS:
        raise SkillError("the name is too long")
    metadata = fields.field("metadata")
    short = metadata.field("short-description") if isinstance(metadata, YamlMapping) else None
    return name, description, _one_line(short)


def _parse_repaired(text: str) -> Value:
    """Parse *text*, in which a value such as ``use when: this`` may lack its quotes."""
    for _ in range(_MAX_REPAIRS):
        try:
            return parse(text)
        except YamlError as exc:
            repaired = _repaired(text, exc.line)
            if repaired is None:
                raise
            text = repaired
    return parse(text)


def _repaired(text: str, line: int | None) -> str | None:
    """*text* with quotes around the value on one line; None if that line has another fault."""
    lines = text.splitlines(keepends=True)
    if line is None or line >= len(lines):
        return None
    match = _COLON_IN_VALUE.fullmatch(lines[line].rstrip())
    if match is None:
        return None
    value = _COMMENT.sub("", match["value"]).replace("'", "''")
    lines[line] = f"{match['key']}'{value}'\n"
    return "".join(lines)


def agent_metadata(text: str | None) -> tuple[SkillDependencies | None, SkillPolicy | None]:
    """The dependencies and policy of `agents/openai.yaml`; both are None if it is malformed."""
    if text is None:
        return None, None
    try:
        fields = parse(text)
        if not isinstance(fields, YamlMapping):
            return None, None
        return _dependencies(fields.field("dependencies")), _policy(fields.field("policy"))
    except (YamlError, SkillError):
        return None, None


def _one_line(value: Value) -> str | None:
    """Text with single blanks as its only white space; None if nothing is left."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _dependencies(value: Value) -> SkillDependencies | None:
    tools = value.field("tools") if isinstance(value, YamlMapping) else None
    if not isinstance(tools, list):
        return None
    found = [_tool(tool) for tool in tools if isinstance(tool, YamlMapping)]
    usable = [tool for tool in found if tool is not None]
    return SkillDependencies(usable) if usable else None


def _tool(fields: YamlMapping) -> SkillTool | None:
    kind, value = _one_line(fields.field("type")), _one_line(fields.field("value"))
    if kind is None or value is None:
        return None
    return SkillTool(
        kind,
        value,
        description=_one_line(fields.field("description")),
        transport=_one_line(fields.field("transport")),
        command=_one_line(fields.field("command")),
        url=_one_line(fields.field("url")),
        oauth_callback_port=_callback_port(fields.field("oauth")),
    )


def _callback_port(oauth: Value) -> int | None:
    if not isinstance(oauth, YamlMapping):
        return None
    value = oauth.field("callback_port")
    if value is None:
        value = oauth.field("callbackPort")
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,5}", value):
        return None
    return int(value) if int(value) <= _MAX_PORT else None


def _policy(value: Value) -> SkillPolicy | None:
    if not isinstance(value, YamlMapping):
        return None
    allowed = value.field("allow_implicit_invocation")
    products = value.field("products") or []
    if allowed is not None and (not isinstance(allowed, str) or allowed not in _BOOLEANS):
        raise SkillError("allow_implicit_invocation is neither true nor false")
    if not isinstance(products, list):
        raise SkillError("products is not a list")
    names = [each.lower() if isinstance(each, str) else "" for each in products]
    if not _PRODUCTS.issuperset(names):
        raise SkillError("an unknown product")
    return SkillPolicy(_BOOLEANS[allowed] if allowed is not None else None, names)
