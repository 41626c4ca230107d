"""What a skill's files say, parsed."""

from __future__ import annotations

import re

from exec_server.discovery import yaml_subset
from exec_server.discovery.yaml_subset import Value, YamlError
from exec_server.protocol.environment import SkillDependencies, SkillPolicy, SkillTool

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_BOOLEANS = {"true": True, "false": False}
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
        fields = yaml_subset.parse(match[1])
    except YamlError as exc:
        raise SkillError(str(exc)) from exc
    if not isinstance(fields, dict):
        raise SkillError("front matter is no mapping")
    description = _one_line(fields.get("description"))
    name = _one_line(fields.get("name"))
    if isinstance(fields.get("name"), list | dict):
        raise SkillError("a name that is no text")
    if description is None:
        raise SkillError("no description")
    if name is not None and len(name) > _NAME_CHARS:
        raise SkillError("a name that is too long")
    metadata = fields.get("metadata")
    short = metadata.get("short-description") if isinstance(metadata, dict) else None
    return name, description, _one_line(short)


def agent_metadata(text: str | None) -> tuple[SkillDependencies | None, SkillPolicy | None]:
    """Dependencies and policy of `agents/openai.yaml`; nothing when any of it is wrong."""
    if text is None:
        return None, None
    try:
        fields = yaml_subset.parse(text)
        if not isinstance(fields, dict):
            return None, None
        return _dependencies(fields.get("dependencies")), _policy(fields.get("policy"))
    except (YamlError, SkillError):
        return None, None


def _one_line(value: Value) -> str | None:
    """Text with its white space evened out; None when there is none."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _dependencies(value: Value) -> SkillDependencies | None:
    tools = value.get("tools") if isinstance(value, dict) else None
    if not isinstance(tools, list):
        return None
    found = [_tool(tool) for tool in tools if isinstance(tool, dict)]
    usable = [tool for tool in found if tool is not None]
    return SkillDependencies(usable) if usable else None


def _tool(fields: dict[str, Value]) -> SkillTool | None:
    kind, value = _one_line(fields.get("type")), _one_line(fields.get("value"))
    if kind is None or value is None:
        return None
    return SkillTool(
        kind,
        value,
        description=_one_line(fields.get("description")),
        transport=_one_line(fields.get("transport")),
        command=_one_line(fields.get("command")),
        url=_one_line(fields.get("url")),
        oauth_callback_port=_callback_port(fields.get("oauth")),
    )


def _callback_port(oauth: Value) -> int | None:
    if not isinstance(oauth, dict):
        return None
    value = oauth.get("callback_port", oauth.get("callbackPort"))
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,5}", value):
        return None
    return int(value) if int(value) <= _MAX_PORT else None


def _policy(value: Value) -> SkillPolicy | None:
    if not isinstance(value, dict):
        return None
    allowed = value.get("allow_implicit_invocation")
    products = value.get("products") or []
    if allowed is not None and (not isinstance(allowed, str) or allowed not in _BOOLEANS):
        raise SkillError("allow_implicit_invocation is true or false")
    if not isinstance(products, list):
        raise SkillError("products are a list")
    names = [each.lower() if isinstance(each, str) else "" for each in products]
    if not _PRODUCTS.issuperset(names):
        raise SkillError("a product that nobody knows")
    return SkillPolicy(_BOOLEANS[allowed] if allowed is not None else None, names)
