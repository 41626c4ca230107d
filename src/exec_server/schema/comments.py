"""The comments beside members and constants, read from the source: they describe the protocol."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import lru_cache
from importlib.resources import files
from types import ModuleType

_OURS = "Ours"


class Comments:
    """The comments of one module: above the members of its classes, and above its constants."""

    def __init__(self, source: str) -> None:
        self._lines = _comment_lines(source)
        # By class and member; constants belong to the class "".
        self.texts: dict[tuple[str, str], str] = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.AnnAssign):
                        self._add(node.name, member.target, member.lineno)
            elif isinstance(node, ast.Assign):
                self._add("", node.targets[0], node.lineno)

    def _add(self, owner: str, target: ast.expr, line: int) -> None:
        text = self._above(line)
        if text and isinstance(target, ast.Name):
            self.texts[owner, target.id] = text

    def _above(self, line: int) -> str:
        found: list[str] = []
        while line - 1 in self._lines:
            line -= 1
            found.append(self._lines[line])
        return " ".join(reversed(found))


def comments_of(module: ModuleType) -> Comments:
    """The comments of *module*."""
    return _comments(module.__name__)


@lru_cache(maxsize=64)
def _comments(name: str) -> Comments:
    package, _, module = name.rpartition(".")
    return Comments(files(package).joinpath(f"{module}.py").read_text(encoding="utf-8"))


def without_owner(comment: str) -> str:
    """*comment* without the word that says that the member is ours, and what it depends on."""
    if not is_ours(comment):
        return comment
    _, mark, rest = comment.partition(": ")
    condition = comment.partition(":")[0].removeprefix(_OURS).strip(" ,.")
    if not mark:
        return comment.removeprefix(_OURS).lstrip(" .,")
    text = rest[:1].upper() + rest[1:]
    return f"{condition[:1].upper()}{condition[1:]}: {rest}" if condition else text


def is_ours(comment: str) -> bool:
    return comment == _OURS or comment.startswith((f"{_OURS}:", f"{_OURS},", f"{_OURS}."))


def _comment_lines(source: str) -> dict[int, str]:
    """The comments that have a line for themselves, by its number."""
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            found[token.start[0]] = token.string.lstrip("# ").rstrip()
    return found
