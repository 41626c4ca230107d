"""Make the folder that Sphinx reads: ``python -m scripts.site.stage FOLDER``.

Pages keep the paths that they have in the repository, so that their links work in both places.
Files that pages link to come along.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from scripts.site import cli_reference, client_reference, pages

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")


def stage(folder: Path) -> None:
    """Fill *folder* with everything that the site is made from."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in pages.PROJECT:
        shutil.copy(ROOT / f"{name}.md", folder / f"{name}.md")
    cli_reference.write(folder / "docs" / "reference" / "cli")
    client_reference.write(folder / "docs" / "reference" / "client")
    _write_front(folder)
    for page in [*folder.rglob("*.md")]:
        _bring_linked(page, folder)


def _write_front(folder: Path) -> None:
    """The front page is docs/index.md, one folder further up, with the navigation."""
    source = folder / "docs" / "index.md"
    text = _LINK.sub(lambda link: f"]({_moved(link[1])}", source.read_text(encoding="utf-8"))
    source.unlink()
    (folder / "index.md").write_text(f"{text}\n{pages.tables(folder / 'docs')}", encoding="utf-8")


def _moved(target: str) -> str:
    return target.removeprefix("../") if target.startswith("../") else f"docs/{target}"


def _bring_linked(page: Path, folder: Path) -> None:
    """Copy the files that *page* links to and the site does not have yet."""
    text = page.read_text(encoding="utf-8")
    for target in set(_LINK.findall(text)):
        wanted = (page.parent / target).resolve()
        if wanted.exists() or not wanted.is_relative_to(folder.resolve()):
            continue
        source = ROOT / wanted.relative_to(folder.resolve())
        if source.is_file():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, wanted)
        elif source.is_dir():
            # A site without a server cannot list a folder: the words of the link stay.
            text = re.sub(rf"\[([^\]]*)\]\({re.escape(target)}\)", r"\1", text)
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
