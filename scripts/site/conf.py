"""The settings of Sphinx; every warning is an error (`make docs`)."""

from __future__ import annotations

from pathlib import Path

from exec_server.version import VERSION

_HERE = Path(__file__).parent

project = "exec-server"
copyright = "the authors of exec-server"
version = release = VERSION
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
]
# The anchors are those of GitHub, so that a link works in both places.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]
# A drawing is text in the page; the reader's browser renders it.
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"show-inheritance": True}
copybutton_prompt_text = r"\$ |big\$ |laptop\$ |>>> "
copybutton_prompt_is_regexp = True
html_theme = "furo"
html_title = f"exec-server {VERSION}"
html_static_path = [str(_HERE / "static"), str(_HERE.parents[1] / "build" / "site-static")]
html_css_files = ["site.css"]
html_js_files = ["mermaid.min.js", "draw.js"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: object) -> None:
    """Make ```` ```mermaid ```` a directive that leaves its text to the browser."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class Mermaid(Directive):
        has_content = True

        def run(self) -> list[nodes.Node]:
            from html import escape

            text = escape("\n".join(self.content))
            return [nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html")]

    app.add_directive("mermaid", Mermaid)  # type: ignore[attr-defined]
