"""Sphinx's settings; see https://www.sphinx-doc.org. The pages are those that stage.py wrote."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.util import logging

project = "Reverie"
copyright = "the authors of Reverie; Apache-2.0"
extensions = ["myst_parser"]
# An annotation that fits two names, as `Transport`, is linked to the first.
suppress_warnings = ["ref.python"]

# Anchors as code hosts make them, so that a link works in both.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

smartquotes = False  # `--help` has two signs

html_theme = "furo"
html_title = "Reverie"
html_static_path = [str(Path(__file__).parent / "assets")]
html_css_files = ["style.css"]
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {"color-brand-primary": "#0b6e66", "color-brand-content": "#0b6e66"},
    "dark_css_variables": {"color-brand-primary": "#5fd0c5", "color-brand-content": "#5fd0c5"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"


logger = logging.getLogger(__name__)
#: An address in a page or a style sheet that a browser fetches with it.
FETCHES = {
    ".html": re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']((?:https?:)?//[^"']+)"""),
    ".css": re.compile(r"""(?:url\(|@import )["']?((?:https?:)?//[^"')]+)"""),
}


def titles(toc: nodes.Node) -> nodes.Node:
    """A page's contents without its sections: its title, and the pages below it."""
    kept = toc.deepcopy()
    for item in [item for item in kept.findall(nodes.list_item) if item is not kept[0]]:
        if item.next_node(toctree) is None:
            item.parent.remove(item)
    return kept


def setup(app: Sphinx) -> None:
    """Makes the navigation of a page from titles alone: to copy all sections of all pages takes half of the build."""
    short: dict[str, nodes.Node] = {}

    def shorten(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
        make = context["toctree"]

        def navigation(**options: Any) -> Any:
            whole = app.env.tocs
            if not short:
                short.update({page: titles(toc) for page, toc in whole.items()})
            app.env.tocs = short
            try:
                return make(**options)
            finally:
                app.env.tocs = whole

        context["toctree"] = navigation

    app.connect("html-page-context", shorten, priority=400)
    app.connect("build-finished", report_fetches)


def report_fetches(app: Sphinx, _error: object) -> None:
    """Warns of what a browser would fetch from a network: the site works without one."""
    for file in Path(app.outdir).rglob("*"):
        if file.suffix in FETCHES:
            for address in sorted(set(FETCHES[file.suffix].findall(file.read_text(errors="replace")))):
                logger.warning("%s fetches %s from a network", file.relative_to(app.outdir), address)
