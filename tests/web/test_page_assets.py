"""The files of the page: what its first view needs is asked for at once."""

from __future__ import annotations

import posixpath
import re

from exec_server.web.page_assets import PageAsset, read_assets

_IMPORT = re.compile(r'^import[^;]*?"(\.[^"]+)"', re.MULTILINE)


def _needed(assets: dict[str, PageAsset], name: str, found: set[str]) -> set[str]:
    """The modules that *name* imports, and those that they import."""
    for word in _IMPORT.findall(assets[name].plain.decode()):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), word))
        if path not in found:
            found.add(path)
            _needed(assets, path, found)
    return found


def test_every_module_of_the_first_view_is_loaded_beside_the_first():
    assets = read_assets()
    page = assets["index.html"].plain.decode()
    preloaded = set(re.findall(r'rel="modulepreload" href="/assets/([^"]+)"', page))
    needed = _needed(assets, "app/main.js", set())
    assert len(needed) >= 5
    assert needed <= preloaded
    assert preloaded <= assets.keys()
