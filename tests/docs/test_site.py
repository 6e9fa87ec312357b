"""The site: pages in its navigation, names and commands in its reference, and anchors that links name."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import reverie

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Modules of the package that do not belong to its interface, or whose names are those of another module.
INNER = {"cli", "ported"}
FENCED = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)


@pytest.fixture
def website(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")


def module(name: str) -> ModuleType:
    return importlib.import_module(f"website.{name}")


def pages() -> list[Path]:
    return sorted([*DOCS.rglob("*.md"), *(ROOT / "python" / "reverie" / "agents").rglob("*.md"), *ROOT.glob("*.md")])


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.usefixtures("website")
def test_the_navigation_names_each_page_once() -> None:
    navigation = module("navigation")
    named = Counter(navigation.paths(navigation.read()))
    missing = [name_of(page) for page in pages() if name_of(page) not in named]
    assert missing == [], "add them to docs/navigation.toml"
    assert [path for path, count in named.items() if count > 1] == []
    made = {*module("reference").PAGES, module("reference").INDEX}
    made |= {module("command_line").PAGE, module("settings").PAGE}
    assert [path for path in named if not (ROOT / path).exists() and path not in made] == []


@pytest.mark.usefixtures("website")
def test_a_page_that_lists_others_puts_them_below_itself_in_its_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    navigation, tree = module("navigation"), module("tree")
    for name, text in {
        "docs/README.md": "[two](two.md) [one](one.md#part), [far](other/far.md) [out](../out.md) [two again](two.md)",
        **dict.fromkeys(("docs/one.md", "docs/two.md", "docs/other/far.md", "out.md"), "# page"),
        "docs/navigation.toml": '[[section]]\ntitle = "All"\npages = ["docs/README.md"]\nlists = ["docs/README.md"]\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr(navigation, "FILE", tmp_path / "docs" / "navigation.toml")
    below = ["docs/two.md", "docs/one.md", "docs/other/far.md"]
    assert navigation.paths(navigation.read()) == ["README.md", "docs/README.md", *below]
    contents = navigation.contents(navigation.read())["index.md"]
    assert [line for line in contents.splitlines() if line.startswith("/")] == ["/two.md", "/one.md", "/other/far.md"]


@pytest.mark.usefixtures("website")
def test_the_reference_has_every_public_name() -> None:
    reference = module("reference")
    documented = [name for place in reference.PAGES for name in reference.names(place)]
    assert [name for name, count in Counter(documented).items() if count > 1] == []
    assert "reverie.Batch" in documented
    assert "reverie.parameters.FileChannel" in documented
    modules = {name.removesuffix(".*") for page in reference.PAGES.values() for name in page.names if ".*" in name}
    known = {*documented, *reference.SAME, *modules}
    package = ROOT / "python" / "reverie"
    public = [f"reverie.{name}" for name in reverie.__all__]
    for path in sorted([*package.glob("[a-z]*.py"), *package.glob("[a-z]*/__init__.py")]):
        name = f"reverie.{path.stem if path.stem != '__init__' else path.parent.name}"
        if name.rpartition(".")[2] not in INNER and "__all__" in path.read_text():
            public += [f"{name}.{inner}" for inner in reference.public(name)]
    public += [f"reverie.integrations.{path.parent.name}" for path in package.glob("integrations/*/__init__.py")]
    public += [f"reverie.integrations.{path.stem}" for path in package.glob("integrations/[a-z]*.py")]
    missing = [name for name in public if name not in known and not is_one_of(name, [*documented, *reference.SAME])]
    assert missing == [], "add them to tools/website/reference.py"


def is_one_of(name: str, documented: list[str]) -> bool:
    """Whether a name is another one's object, such as `reverie.server.Server`."""
    alike = [other for other in documented if other.rpartition(".")[2] == name.rpartition(".")[2]]
    return any(found(name) is found(other) for other in alike)


def found(name: str) -> object:
    """The object of a dotted name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise LookupError(name)


@pytest.mark.usefixtures("website")
def test_names_that_are_another_name_are_that_object() -> None:
    same = {name: other for name, other in module("reference").SAME.items() if isinstance(found(name), type)}
    assert len(same) > 1
    assert [name for name, other in same.items() if found(name) is not found(other)] == []


@pytest.mark.usefixtures("website")
def test_the_page_of_the_commands_has_each_command_and_option() -> None:
    pytest.importorskip("typer")
    import typer.main

    from reverie.cli.app import app

    page = module("command_line").page()
    command = typer.main.get_command(app)
    assert [name for name in command.commands if f"\n## reverie {name}\n" not in page] == []
    options = {option for inner in command.commands.values() for one in inner.params for option in one.opts}
    shown = {option for option in options if option.startswith("--") and option != "--resume-must"}
    assert len(shown) > 50
    assert [option for option in sorted(shown) if option not in page] == []
    assert "\n### reverie checkpoint " in page


@pytest.mark.usefixtures("website")
def test_links_between_files_become_links_between_pages() -> None:
    tree = module("tree")
    text = (
        "[a](table.md#limiters-in-numbers) [b](../../README.md) [c](../../examples) [d](https://x.org) `[e](none.md)`"
    )
    moved = tree.moved(text, "docs/concepts/sample.md")
    assert moved == (
        "[a](table.md#limiters-in-numbers) [b](../index.md) [c](../examples/index.md) [d](https://x.org) `[e](none.md)`"
    )
    assert tree.moved("[f](../decisions)", "docs/concepts/sample.md") == "[f](../decisions/index.md)"
    with pytest.raises(tree.LinkError, match=r"Cargo\.lock: add \.lock to SHOWN or COPIED"):
        tree.moved("[g](Cargo.lock)", "README.md")


@pytest.mark.usefixtures("website")
def test_the_folder_of_a_row_of_the_results_lists_the_file_of_each_seed() -> None:
    tree = module("tree")
    row = "benchmarks/results/learn/cartpole-dqn"
    assert f"{row}/seed-100.json" in tree.reachable([row])
    assert tree.text_of(row, listed=True).startswith("# Cartpole-dqn\n\n- [seed-100.json](seed-100.json)\n")
    assert tree.reachable(["benchmarks/results/learn"]) == ["benchmarks/results/learn"]


@pytest.mark.usefixtures("website")
def test_sections_of_a_docstring_are_lists_and_its_signs_stay_signs() -> None:
    markdown = module("docstrings").markdown
    text = """Draws a*b of [N] `x[0]`.

    Args:
        table: the table,
            by its name.
        columns, ragged: as in `sample`.

    Raises:
        ClosedError, and others.

    Returns:
        a batch.
    """
    assert markdown(text) == (
        r"Draws a\*b of \[N\] `x[0]`."
        "\n\n**Arguments**\n\n- `table`: the table,\n  by its name.\n- `columns`, `ragged`: as in `sample`."
        "\n\n**Raises**\n\n- ClosedError, and others.\n\n**Returns**\n\na batch."
    )
    assert "- {py:obj}`ClosedError <reverie.ClosedError>`, and others." in markdown(text, ["ClosedError"])


@pytest.mark.usefixtures("website")
def test_signatures_and_texts_of_the_reference_are_those_of_the_source_and_the_stubs() -> None:
    pytest.importorskip("griffe")
    api = module("api")
    client = api.described("reverie.Client")
    assert client.startswith("::::{py:class} Client(server_address: str | Sequence[str | Client], *, rate_limiter:")
    assert ":::{py:method} sample_batch(table: str, batch_size: int, *, timeout: float | None = None," in client
    assert "without_replacement: bool = False) -> Batch\n" in client
    inserts = client.partition("{py:method} insert_batch(")[2].partition(":::\n")[0]
    assert inserts.count("\ninsert_batch(") >= 1, "each overload has its signature"
    assert "{py:obj}`DeadlineExceededError <reverie.DeadlineExceededError>`: " in client
    assert api.described("reverie.TransitionWriter").startswith("::::{py:class} TransitionWriter\n")
    with pytest.raises(LookupError, match=r"reverie\.Client2, and reverie has no Client2"):
        api.described("reverie.Client2")


def anchors(text: str) -> set[str]:
    """The anchors that code hosts and the site give to the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads]
    return {slug if not count else f"{slug}-{count}" for slug, count in numbered(slugs)}


def numbered(slugs: list[str]) -> list[tuple[str, int]]:
    return [(slug, slugs[:index].count(slug)) for index, slug in enumerate(slugs)]


@pytest.mark.parametrize("page", [*pages(), ROOT / "benchmarks" / "README.md"], ids=name_of)
def test_the_anchors_of_a_page_exist(page: Path) -> None:
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text()):
        other = page.parent / target if target else page
        if other.suffix == ".md" and anchor not in anchors(other.read_text()):
            missing.append(f"{target}#{anchor}")
    assert missing == []


def test_anchors_of_headings_are_those_of_code_hosts() -> None:
    text = "# The `x` of a_b, twice\n## Part\n```sh\n# no heading\n```\n## Part\n"
    assert anchors(text) == {"the-x-of-a_b-twice", "part", "part-1"}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_is_markdown_that_code_hosts_show(page: Path) -> None:
    text = re.sub(r"^````.*?^````", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?:```|:::+)\{.*|^!!! .*|\{(?:py|doc|ref):?\w*\}`", text, re.MULTILINE) == []
