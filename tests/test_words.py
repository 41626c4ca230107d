"""Words that make sentences hard to read do not occur in comments, docstrings and documents.

docs/style.md says which words these are and what to write instead.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.source_tree import REPOSITORY, modules

WORDS = re.compile(r"\b(nobody|whoever|somebody|anybody|to\s+be\s+had)\b", re.IGNORECASE)
# Names and code, such as the Unix user `nobody`.
QUOTED = re.compile(r"`[^`]*`|\"[^\"\n]*\"|'nobody'")
CODE_BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)


def found_in(text: str, *, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the line numbers and the words of *text*, quoted names left out."""
    # As many line ends stay as there were, so that the numbers are right.
    plain = QUOTED.sub(lambda quoted: "\n" * quoted.group().count("\n"), text)
    for match in WORDS.finditer(plain):
        yield first_line + plain.count("\n", 0, match.start()), " ".join(match.group().split())


def in_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the words in the comments and docstrings of *source*."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from found_in(token.string, first_line=token.start[0])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield from found_in(text, first_line=node.body[0].lineno)


def in_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words in the prose of *text*; blocks of code are left out."""
    yield from found_in(CODE_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), text))


def documents() -> list[Path]:
    return [
        *sorted(REPOSITORY.glob("docs/**/*.md")),
        *(
            path
            for name in ("README.md", "CONTRIBUTING.md")
            if (path := REPOSITORY / name).exists()
        ),
    ]


def report(found: list[str]) -> str:
    return "\n  ".join([f"words to replace, see docs/style.md ({len(found)}):", *found])


@requirement("house/words:plain")
def test_comments_and_docstrings_use_plain_words():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {word}"
        for path in modules().values()
        for line, word in sorted(in_python(path.read_text(encoding="utf-8")))
    ]
    assert not found, report(found)


@requirement("house/words:plain")
def test_documents_use_plain_words():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {word}"
        for path in documents()
        for line, word in in_markdown(path.read_text(encoding="utf-8"))
    ]
    assert not found, report(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is for nobody.", [(1, "nobody")]),
        ("One\nWhoever reads, somebody", [(2, "Whoever"), (2, "somebody")]),
        ("what is to\nbe had", [(1, "to be had")]),
        ("the user `nobody`", []),
        ('"nobody" is a user', []),
        ("`a\nb`\nanybody", [(3, "anybody")]),
        ("```\nnobody\n```\nnobody", [(4, "nobody")]),
    ],
)
def test_words_are_found_in_prose(text, found):
    assert list(in_markdown(text)) == found


def test_words_are_found_in_comments_and_docstrings():
    source = '"""One.\n\nNobody."""\nx = "nobody"  # for anybody\ndef f():\n    """Whoever."""\n'
    assert sorted(in_python(source)) == [(3, "Nobody"), (4, "anybody"), (6, "Whoever")]
