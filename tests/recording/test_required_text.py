"""The text that every match contains."""

from __future__ import annotations

import random
import re

import pytest

from exec_server.recording.required_text import required_text


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("Permission denied", "Permission denied"),
        (r"\bfoo\d+barbaz", "barbaz"),
        ("[Ee]rror: .*xyz", "rror: "),
        (r"a\.b\.c", "a.b.c"),
        ("abc?de", "ab"),
        ("abc*", "ab"),
        ("ab+c", "ab"),
        ("abc{0,3}", "ab"),
        ("foo|barbaz", None),
        ("(foo)?", None),
        (r"\x41\x42cd", "cd"),
        (r"[]ab]cd[^]x]", "cd"),
        ("a", None),
        ("", None),
        ("^abc$", "abc"),
    ],
)
def test_known_patterns(pattern, wanted):
    assert required_text(re.compile(pattern)) == wanted


def test_every_match_contains_it():
    choose = random.Random(9)
    parts = [
        "a",
        "b",
        "ab",
        ".",
        "[ab]",
        "[^a]",
        "\\d",
        "\\.",
        "a?",
        "b*",
        "a+",
        "b{2}",
        "a{0,1}",
        "$",
        "^",
    ]
    tried = 0
    for _ in range(5000):
        text = "".join(choose.choice(parts) for _ in range(choose.randrange(1, 7)))
        pattern = re.compile(text)
        literal = required_text(pattern)
        if literal is not None:
            for _ in range(20):
                line = "".join(choose.choice("ab1.") for _ in range(12))
                if found := pattern.search(line):
                    tried += 1
                    assert literal in found[0]
    assert tried > 100
    assert required_text(re.compile("AbC", re.IGNORECASE)) is None
