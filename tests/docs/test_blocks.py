"""README and docs are run: every Python block of a page, in order, in one namespace; every link leads somewhere."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie import spans

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("python/**/*.md")]
)
#: A block, and what it prints if the next block has it.
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$(?:\n\n```text\n(.*?)^```[ \t]*$)?", re.MULTILINE | re.DOTALL)
#: Seconds in an output, such as of a wait.
SECONDS = re.compile(r"\b\d+\.\d s\b")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
#: The pages whose blocks train for seconds, or start the processes of a run.
LONG = {
    f"docs/{page}.md"
    for page in (
        "guides/atari",
        "guides/distributed",
        "guides/logs",
        "guides/training",
        "guides/use-a-policy",
        "tutorials/queues-and-ppo",
    )
}

#: Pages about a library that is not everywhere.
NEEDS = {"docs/guides/use-with-jax.md": "jax"}

TRAINED = "runs/dqn-CartPole-v1-seed-0"
"""The run of the command before a block of Python, which the pages assume; here it is a short one."""


def train_briefly(folder: Path) -> None:
    from reverie.agents.dqn import agent
    from reverie.runners import train

    preset = agent.load_preset("CartPole-v1")
    config = dataclasses.replace(preset.config, learning_starts=100, hidden=(8,))
    run = dataclasses.replace(preset.run, max_env_steps=200, screening_episodes=1, confirmation_episodes=1)
    train(agent, "CartPole-v1", config=config, run=run, folder=folder)


def blocks_of(page: str) -> Iterator[tuple[int, str, str | None]]:
    """Each Python block with the number of its first line, and its output; None where the page shows none."""
    for match in BLOCK.finditer(page):
        yield page.count("\n", 0, match.start(1)), match[1], match[2]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with_blocks() -> list[object]:
    pages = [page for page in PAGES if BLOCK.search(page.read_text())]
    return [pytest.param(page, marks=[pytest.mark.long] * (name_of(page) in LONG)) for page in pages]


@pytest.fixture
def no_tracer_provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """OpenTelemetry as a new process has it: a process can set a provider once, and another test may have."""
    trace = pytest.importorskip("opentelemetry.trace")
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)())
    spans.traced.cache_clear()  # Its classes have the tracer of the provider.
    yield
    spans.traced.cache_clear()


@pytest.mark.usefixtures("no_tracer_provider")
@pytest.mark.parametrize("page", pages_with_blocks(), ids=name_of)
def test_the_python_blocks_of_a_page_run_and_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name_of(page) in NEEDS:
        pytest.importorskip(NEEDS[name_of(page)])
    monkeypatch.chdir(tmp_path)
    if TRAINED in page.read_text():
        train_briefly(tmp_path / TRAINED)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, block, output in blocks_of(page.read_text()):
        capsys.readouterr()
        # Padded, so that a traceback names the page's own line.
        exec(compile("\n" * line + block, str(page), "exec"), namespace)
        if output is not None:
            assert SECONDS.sub("0.0 s", capsys.readouterr().out) == SECONDS.sub("0.0 s", output), f"{page}:{line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert "demo" in named
    assert named - targets == set()


def test_every_test_that_a_page_names_exists() -> None:
    named = {
        name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text()) if page.name != "CHANGELOG.md"
    }
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 10
    assert {name for name in named if f"def {name}(" not in text} == set()


def test_the_six_words_have_a_page_each() -> None:
    words = {page.stem for page in (ROOT / "docs" / "concepts").glob("*.md")}
    assert words == {"append", "chunk", "item", "table", "sample", "batch"}


def test_a_broken_block_is_found_at_its_line() -> None:
    page = "text\n\n```python\na = 1\n```\n\n```sh\nnot python\n```\n```python\nb = a + 1\n```\n"
    assert list(blocks_of(page)) == [(3, "a = 1\n", None), (10, "b = a + 1\n", None)]


def test_the_output_of_a_block_is_the_text_right_after_it() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nprint(2)\n```\n\nSo:\n\n```text\n3\n```\n"
    assert [output for _, _, output in blocks_of(page)] == ["1\n", None]


def test_decisions_are_numbered_once_and_dated() -> None:
    pages = sorted(set((ROOT / "docs" / "decisions").glob("*.md")) - {ROOT / "docs" / "decisions" / "README.md"})
    assert pages
    numbers = [page.name[:4] for page in pages]
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name) for page in pages), [page.name for page in pages]
    assert len(set(numbers)) == len(numbers), numbers
    undated = [page.name for page in pages if not re.search(r"^20\d\d-\d\d-\d\d\b", page.read_text(), re.MULTILINE)]
    assert undated == []


def test_the_index_of_decisions_names_each_of_its_pages_by_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    reported = re.findall(r"^- \[(\d{4})\]\((\S+)\): (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert sorted(page for _, page, _ in reported) == sorted(page.name for page in folder.glob("0*.md"))
    titles = {page: (folder / page).read_text().partition("\n")[0] for _, page, _ in reported}
    assert {page: title for number, page, words in reported if (title := titles[page]) != f"# {number}: {words}"} == {}


def test_a_decision_fits_on_one_page() -> None:
    lines = {page.name: page.read_text().count("\n") for page in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert {name: count for name, count in lines.items() if count > 60} == {}


def test_the_index_of_measurements_names_each_of_its_pages_by_title_and_dates() -> None:
    folder = ROOT / "docs" / "measurements"
    row = re.compile(r"^\| \[(.+)\]\((\S+)\) \| .+ \| .+ \| (.+) \|$", re.MULTILINE)
    listed = {page: f"# {title}\n\n{dates}. " for title, page, dates in row.findall((folder / "README.md").read_text())}
    pages = {page.name: page.read_text() for page in folder.glob("*.md") if page.name != "README.md"}
    assert len(pages) > 10
    assert sorted(listed) == sorted(pages)
    assert {name: start for name, start in listed.items() if not pages[name].startswith(start)} == {}
