"""Blocks of code in documents can be read, and those that are not run say why.

`make docs-check` runs the others; it takes too long for every run of the tests.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable

import pytest
import yaml

from tests.documents.run_blocks import is_as_shown, steps_of
from tests.requirements import requirement
from tests.support import doc_pages
from tests.support.doc_pages import Block
from tests.support.source_tree import REPOSITORY

# The contract of the wire has shapes with words in place of values, and the pages of the protocol
# have lines of traffic, which tests/schema compares with the schemas.
OTHERS = ("spec", "protocol")


def read_python(text: str) -> None:
    compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


READERS: dict[str, Callable[[str], object]] = {
    "python": read_python,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "json": json.loads,
}


def problem_of(block: Block) -> str | None:
    """What is wrong with *block*; a block of data that is only a part of a file says so."""
    if block.reason is not None:
        return None if len(block.reason.split()) > 1 else "the reason is missing"
    try:
        READERS.get(block.language, str)(block.text)
    except (SyntaxError, ValueError, yaml.YAMLError) as problem:
        return f"{block.language} that cannot be read: {problem}"
    return None


@requirement("docs/blocks:run-or-say-why")
def test_blocks_can_be_read_and_those_that_are_not_run_say_why():
    wrong = [
        f"{block.where}: {problem}"
        for page in doc_pages.pages()
        if not any(page.is_relative_to(REPOSITORY / "docs" / folder) for folder in OTHERS)
        for block in doc_pages.blocks(page)
        if (problem := problem_of(block)) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("language", "text", "reason", "is_right"),
    [
        ("python", "await client.run(['true'])\n", None, True),
        ("python", "async with:\n", None, False),
        ("toml", "a = 1\n", None, True),
        ("toml", "a = \n", None, False),
        ("json", "{...}\n", "a part of an answer", True),
        ("json", "{...}\n", "", False),
        ("text", "anything (\n", None, True),
    ],
)
def test_what_is_wrong_with_a_block(language, text, reason, is_right):
    assert (problem_of(Block(REPOSITORY, 1, language, text, reason)) is None) is is_right


def test_a_mark_belongs_to_the_block_below_it(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n<!-- not run: it waits -->\n```sh\nsleep 9\n```\n- a\n  ```console\n  $ b\n  ```\n"
    )
    first, second = doc_pages.blocks(page)
    assert (first.line, first.language, first.text, first.reason) == (
        3,
        "sh",
        "sleep 9\n",
        "it waits",
    )
    assert (second.line, second.text, second.reason) == (7, "$ b\n", None)


def test_commands_and_what_they_print():
    text = "$ one \\\n  two\n1\n2\nbig$ three  # said there\n$ cat <<X\n> y\n> X\ny\n"
    steps = list(steps_of(Block(REPOSITORY, 1, "console", text, None)))
    assert [(step.command, step.printed) for step in steps] == [
        ("one \\\n  two", "1\n2\n"),
        ("three  # said there", None),
        ("cat <<X\ny\nX", "y\n"),
    ]
    assert is_as_shown("a\nb\nc\n", "a\n...\n")
    assert is_as_shown("took 12 ms", "took ... ms\n")
    assert not is_as_shown("a\nb", "a")
