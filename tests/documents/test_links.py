"""Links between documents lead somewhere, also those to headings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support import doc_pages
from tests.support.source_tree import REPOSITORY

# Made from the code when the site is built.
MADE = REPOSITORY / "docs" / "reference"


def broken(page: Path) -> list[str]:
    """The links of *page* that lead nowhere."""
    found = []
    for line, link in doc_pages.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.is_relative_to(MADE):
            continue
        if not target.exists():
            found.append(f"{page.name}:{line}: {link}")
        elif anchor and target.suffix == ".md" and anchor not in doc_pages.anchors(target):
            found.append(f"{page.name}:{line}: {link} (no such heading)")
    return found


@requirement("docs/links:lead-somewhere")
def test_links_of_documents_lead_somewhere():
    assert [link for page in doc_pages.pages() for link in broken(page)] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](other.md) [b](other.md#a-heading) [c](#own)\n# Own\n", 0),
        ("[a](missing.md) [b](other.md#missing) [c](#missing)\n", 3),
        ("`[a](missing.md)`\n```\n[b](missing.md)\n```\n[c](https://missing.example)\n", 0),
        ("[two\nlines](missing.md) ![picture](missing.svg)\n", 2),
        ("[a](other.md#again-1) [b](other.md#named)\n", 0),
    ],
)
def test_broken_links_are_found(tmp_path, monkeypatch, text, wrong):
    other = '# A `heading`\n## Again\n## Again\n<a id="named"></a>\n'
    (tmp_path / "other.md").write_text(other)
    page = tmp_path / "page.md"
    page.write_text(text)
    assert len(broken(page)) == wrong
