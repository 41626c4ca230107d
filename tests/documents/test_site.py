"""Every document is a page of the site, in one chapter."""

from __future__ import annotations

from scripts.site import pages
from tests.requirements import requirement
from tests.support.source_tree import REPOSITORY

DOCS = REPOSITORY / "docs"


@requirement("docs/site:every-page")
def test_every_document_is_in_one_chapter():
    listed = [line for line in pages.tables(DOCS).splitlines() if line.startswith("docs/")]
    there = {f"docs/{path.relative_to(DOCS).with_suffix('')}" for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(there - {"docs/index"})


@requirement("docs/site:every-page")
def test_chapters_name_documents_that_exist():
    named = {page for chapter in pages.CHAPTERS for page in chapter.pages}
    made = {page for page in named if page.startswith("reference/")}
    assert [page for page in sorted(named - made) if not (DOCS / f"{page}.md").exists()] == []
    assert [name for name in pages.PROJECT if not (REPOSITORY / f"{name}.md").exists()] == []
