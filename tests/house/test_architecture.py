"""ARCHITECTURE.md: the files that it names exist, and the tree has the properties that it states."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import reverie

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGE = ROOT / "python" / "reverie"
CRATES = ROOT / "crates"
WORDS = ("append", "chunk", "item", "table", "sample", "batch")
FOLDERS = ("crates", "proto", "python", "tests", "examples", "fuzz", "benchmarks", "tools", "docs")

# Full names of classes and functions that pickle an object; `Pipe` makes connections whose `send` pickles.
PICKLING = ("multiprocessing.connection.Connection", "multiprocessing.reduction.ForkingPickler", "multiprocessing.Pipe")
PICKLES = {
    "cli/run_processes.py",
    "runners/launch.py",
    "runners/links/message_sockets.py",
    "runners/links/parameter_connections.py",
    "testing.py",
}
# Prefetching is a hint to the processor behind two safe functions. Wide loops are safe code compiled more than once;
# only the call of a version that the processor lacks is unsafe. Pages are lent by one line, which a model test covers.
# A forked child closes the descriptors of objects that it does not use.
# Stores past the cache are instructions; a property test compares their bytes with those of ordinary copies.
UNSAFE = {
    "reverie-core": {"chunk/slab", "inherited", "prefetch", "stores", "table/policy/pages", "wide"},
    "reverie-net": {"mapping", "uninit"},
    "reverie-py": {"array"},
}
DEPENDENCIES = {
    "reverie-core": set[str](),
    "reverie-net": {"reverie-core"},
    "reverie-py": {"reverie-core", "reverie-net"},
}


def section(title: str) -> str:
    """The text below a heading of the page."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rust(crate: str) -> dict[str, str]:
    """The sources of a crate without comments, and without what is compiled for tests alone."""
    folder = CRATES / crate / "src"
    sources = {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*.rs"))}
    return {path: own_code(text) for path, text in sources.items() if not re.search(r"(^|/|_)tests(/|\.rs$)", path)}


def own_code(source: str) -> str:
    tests = r"#\[cfg\((?:all\()?test[^\n]*\n(?:#\[[^\n]*\n)*"
    code = re.split(tests + r"mod \w+ \{", re.sub(r"//[^\n]*", "", source))[0]
    return re.sub(tests + r"(?:use|mod) [^;]*;", "", code)


def python() -> dict[str, str]:
    return {str(file.relative_to(PACKAGE)): file.read_text() for file in sorted(PACKAGE.rglob("*.py"))}


def imports(source: str) -> Iterator[str]:
    """The full names that a source imports: `multiprocessing.connection.wait`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def matches(sources: dict[str, str], pattern: str) -> dict[str, list[str]]:
    return {path: found for path, text in sources.items() if (found := re.findall(pattern, text))}


def test_each_answer_to_where_something_is_names_a_file_that_has_it() -> None:
    rows = re.findall(r"^\| .+ \| `(\S+)` \| `(.+)` \|$", section("Where is ..."), re.MULTILINE)
    assert len(rows) > 12
    assert [(file, name) for file, name in rows if name not in (ROOT / file).read_text()] == []


def test_every_path_on_the_page_exists() -> None:
    files = {str(file.relative_to(ROOT)) for folder in FOLDERS for file in (ROOT / folder).rglob("*")}
    named = [path.rstrip("/") for path in re.findall(r"`([\w./-]+)`", PAGE) if "/" in path or path.endswith(".rs")]
    assert len(named) > 30
    known = (
        "\n".join(f"/{file}\n/{re.sub(r'(?:/mod)?[.](?:rs|py)$', '', file)}" for file in files | set(FOLDERS)) + "\n"
    )
    assert [path for path in named if f"/{path}\n" not in known] == []


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_a_module_a_page_and_a_folder_of_tests(word: str) -> None:
    assert f"\npub mod {word};" in (CRATES / "reverie-core" / "src" / "lib.rs").read_text()
    assert (ROOT / "docs" / "concepts" / f"{word}.md").exists()
    assert list((ROOT / "tests" / "flow" / word).glob("test_*.py"))


def test_the_layers_on_the_page_are_those_that_the_linter_checks() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = [contract["layers"] for contract in config["contracts"] if contract["type"] == "layers"]
    checked = [[sorted(re.findall(r"\w+", layer)) for layer in layers] for layers in contracts]
    blocks = re.findall(r"^```\n(.*?)^```", section("Layers: only downward"), re.MULTILINE | re.DOTALL)
    assert [[sorted(line.split()) for line in block.splitlines()] for block in blocks] == checked


def test_every_module_of_the_package_has_a_layer() -> None:
    first = re.findall(r"^```\n(.*?)^```", section("Layers: only downward"), re.MULTILINE | re.DOTALL)[0].split()
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    # The two ways to start the package.
    assert modules - set(first) == {"__init__", "__main__"}
    assert set(first) - modules == set()


@pytest.mark.parametrize("crate", sorted(DEPENDENCIES))
def test_a_crate_depends_only_on_those_below_it(crate: str) -> None:
    cargo = tomllib.loads((CRATES / crate / "Cargo.toml").read_text())
    names = set(cargo["dependencies"]) | set(cargo.get("build-dependencies", {}))
    assert {name for name in names if name.startswith("reverie")} == DEPENDENCIES[crate]
    assert ("pyo3" in names) == (crate == "reverie-py")


@pytest.mark.parametrize("crate", sorted(UNSAFE))
def test_unsafe_code_is_in_the_modules_that_the_page_names(crate: str) -> None:
    sources = {re.sub(r"(?:/mod)?\.rs$", "", path): text for path, text in rust(crate).items()}
    places = set(matches(sources, r"\bunsafe\s*(?:\{|fn\b|impl\b|extern\b)"))
    assert {next((m for m in UNSAFE[crate] if f"{p}/".startswith(f"{m}/")), p) for p in places} == UNSAFE[crate]
    assert {module for module in UNSAFE[crate] if f"`{module}`" not in section("Left out on purpose")} == set()


def test_only_the_files_that_the_page_names_pickle() -> None:
    found = {path for path, source in python().items() if set(imports(source)) & set(PICKLING)}
    assert found == PICKLES
    assert {path for path in PICKLES if f"`{path}`" not in section("Left out on purpose")} == set()


def test_the_core_reads_clocks_and_randomness_only_where_the_page_lists() -> None:
    words = (
        r"\b(?:Instant|SystemTime|UNIX_EPOCH|RandomState|OsRng|SysRng|getrandom|thread_rng|from_entropy|from_os_rng)\b"
    )
    threads = {"checkpoint/periodic.rs", "journal/group.rs", "journal/syncs.rs"}
    assert set(matches(rust("reverie-core"), words)) == {"clock.rs", *threads}


def test_the_network_reads_time_through_tokio_alone() -> None:
    sources = rust("reverie-net")
    # For a lock of the file system, before the server serves: its caller may be in a runtime already.
    waits = {"local/directory.rs": ["thread::sleep"]}
    assert matches(sources, r"\bstd::time::(?!Duration\b)[^;]*|\bthread::sleep\b|\bSystemTime\b") == waits
    used = matches(sources, r"\bInstant\b")
    assert len(used) > 5
    assert [path for path in used if "tokio::time::Instant" not in sources[path]] == []


def test_no_channel_and_no_queue_is_unbounded() -> None:
    channels = r"\bunbounded\w*|\bmpsc::channel\(\)"
    found = {crate: matches(rust(crate), channels) for crate in DEPENDENCIES}
    assert {crate: set(places) for crate, places in found.items() if places} == {"reverie-net": {"listen.rs"}}
    assert matches(python(), r"\b(?:Simple|Lifo|Priority)?Queue\(\)|\bSimpleQueue\b") == {}


def test_no_generator_of_random_numbers_is_global() -> None:
    owned = r"(?:Generator|default_rng|SeedSequence|RandomState|Random|SystemRandom|PCG64|Philox|BitGenerator)\b"
    assert (
        matches(python(), rf"\bnp\.random\.(?!{owned})\w+|\bdefault_rng\(\)|(?<![\w.])random\.(?!{owned})\w+\(") == {}
    )
    assert matches(python(), r"\btorch\.(?:manual_seed|seed|set_rng_state)\b") == {}
    # A user's factory of layers draws from PyTorch's generator, which is forked for it.
    assert set(matches(python(), r"\bdefault_generator\b")) == {"agents/own_layers.py"}


def test_no_decision_depends_on_the_text_of_an_error() -> None:
    found = []
    for path, source in python().items():
        for handler in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ExceptHandler) and n.name):
            text = rf"\bstr\({handler.name}\)|\b{handler.name}\.args\b"
            for node in ast.walk(handler):
                compared = isinstance(node, ast.Compare) and re.search(text, ast.unparse(node))
                method = isinstance(node, ast.Call) and re.search(
                    rf"(?:{text}).*\.(?:startswith|endswith|find|index)$|^re\.\w+$", ast.unparse(node.func)
                )
                if compared or (method and re.search(text, ast.unparse(node))):
                    found.append(f"{path}:{node.lineno}")
    assert found == []
    compared = r"(?:to_string\(\)|\bmessage\(\))\.(?:contains|starts_with|ends_with|find)\("
    assert {crate: bad for crate in DEPENDENCIES if (bad := matches(rust(crate), compared))} == {}


def test_the_reason_why_a_request_waits_is_written_in_one_file() -> None:
    written = matches(rust("reverie-core"), r"impl (?:std::)?fmt::Display for (?:\w*(?:Reason|Block|Why)|Starved)\b")
    assert set(written) == {"table/waiting/reason.rs"}


def test_nothing_of_a_table_copies_or_packs_the_bytes_of_a_chunk() -> None:
    inside = {path: text for path, text in rust("reverie-core").items() if path.startswith("table/")}
    assert len(inside) > 20
    words = r"\bcrate::batch\b|\bchunk::codec\b|\bcopy_from_slice\b|\bcopy_nonoverlapping\b|\b(?:lz4_flex|zstd)::"
    assert matches(inside, words) == {}


def test_every_call_of_a_client_but_close_takes_a_timeout() -> None:
    calls = [name for name, of in inspect.getmembers(reverie.Client, callable) if not name.startswith("_")]
    assert len(calls) > 20
    without = [name for name in calls if "timeout" not in inspect.signature(getattr(reverie.Client, name)).parameters]
    assert without == ["close"]


def test_no_two_files_of_tests_register_an_environment_under_one_name():
    named = re.compile(r"""\bregister\(\s*['"](\w+-v\d+)['"]""")
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in set(named.findall(path.read_text())):
            found.setdefault(name, []).append(path.name)
    assert len(found) > 3, "they are not seen any more"
    # The later one would replace the other in a worker that runs both files.
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
