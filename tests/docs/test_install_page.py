"""Pages that name an extra lead to the installation, which says what is left out on new versions of Python."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ROOT / "docs" / "guides" / "install.md"
LIMITED = re.compile(r"([\w-]+)[^;]*; python_version < '(3\.\d+)'")


def test_each_page_with_a_command_of_pip_links_to_the_installation() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if 'pip install "reverie[' in page.read_text()]
    assert len(pages) > 10
    assert [page.name for page in pages if page != INSTALL and "install.md)" not in page.read_text()] == []


def test_the_installation_names_each_package_that_a_new_python_leaves_out() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    limited = {
        (extra, found[1].lower(), found[2])
        for extra, packages in extras.items()
        for package in packages
        if (found := LIMITED.match(package))
    }
    assert {("ray", "ray", "3.14"), ("envpool", "envpool", "3.15")} <= limited
    section = INSTALL.read_text().partition("## Python 3.14 and newer")[2].partition("\n## ")[0]
    first, _, second = section.partition("from 3.15 on")
    parts = {"3.14": " ".join(first.split()), "3.15": " ".join(second.split())}
    assert [
        (extra, package)
        for extra, package, version in sorted(limited)
        if f"`reverie[{extra}]`" not in parts[version]
        or f" {package}" not in re.sub(r"`.*?`", "", parts[version]).lower()
    ] == []
