"""Rooms of the crates and the packages: which file uses which, their order, and that no files form a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = ROOT / "crates"

# A module's path in its crate, without `crate`.
Module = tuple[str, ...]

# Rooms of the core that are one storey: a stage of the flow may use another, file by file and without a circle.
FLOW = ("append", "chunk", "item", "table", "sample", "batch")

DEFINED = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?(?:unsafe |const )?(?:struct|enum|trait|type|fn|const|static|mod) (\w+)", re.MULTILINE
)
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
TESTS = r"#\[cfg\((?:all\()?test[^\n]*\n(?:#\[[^\n]*\n)*(?:pub(?:\([^)]*\))? )?"


def sources_of(crate: str) -> dict[str, str]:
    folder = CRATES / crate / "src"
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*.rs"))}


def own_code(source: str) -> str:
    """A source without comments, without visibilities, and without what is compiled for its tests alone."""
    code = re.split(TESTS + r"mod \w+ \{", re.sub(r"//[^\n]*|\(in [\w:]+\)", "", source))[0]
    return re.sub(TESTS + r"(?:use|mod) [^;]*;", "", code)


def module_of(path: str) -> Module:
    parts = path.removesuffix(".rs").split("/")
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib") else parts)


def paths_in(tree: str) -> Iterator[Module]:
    """The paths of a `use`: `a::{b, c::d as e}` is `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        if tree.strip():
            yield tuple(tree.split(" as ")[0].strip().split("::"))
        return
    inner, depth, part = rest.rpartition("}")[0] + ",", 0, ""
    for letter in inner:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            for path in paths_in(part):
                yield tuple(word for word in head.strip().split("::") if word) + path
            part = ""
        else:
            part += letter


class Crate:
    """The files of a crate by their modules, and what each names."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.code = {module_of(path): own_code(source) for path, source in sources.items()}
        self.exported: dict[Module, dict[str, Module]] = {}
        for module, code in self.code.items():
            uses = [path for public, tree in USE.findall(code) if public for path in paths_in(" ".join(tree.split()))]
            self.exported[module] = {path[-1]: path for path in uses}

    def absolute(self, module: Module, path: Module) -> Module | None:
        """The path from the crate's root; `None` where it leads out of the crate."""
        if path[0] == "crate":
            return path[1:]
        while path and path[0] in ("self", "super"):
            module, path = (module if path[0] == "self" else module[:-1]), path[1:]
            if not path or path[0] != "super":
                return module + path
        return module + path if module + path[:1] in self.code else None

    def home(self, path: Module, steps: int = 0) -> Module | None:
        """The module whose file defines what a path names, through what other modules export again."""
        for length in range(len(path), -1, -1):
            module, rest = path[:length], path[length:]
            if module not in self.code:
                continue
            if not rest or steps > len(self.code):
                return module
            exported = self.exported[module]
            for name, further in ((rest[0], rest[1:]), ("*", rest)):
                defined_here = name == "*" and rest[0] in DEFINED.findall(self.code[module])
                if name in exported and not defined_here:
                    target = self.absolute(module, exported[name][: -1 if name == "*" else None])
                    if target is not None:
                        return self.home(target + further, steps + 1)
            return module
        return None

    def named_in(self, module: Module) -> Iterator[Module]:
        """Every path in the code. A name that is only exported again is not used, unless code names it elsewhere."""
        code = self.code[module]
        rest = USE.sub("", code)
        for public, tree in USE.findall(code):
            for path in paths_in(" ".join(tree.split())):
                variant = r"(?!\s*\()" if path[-1][:1].isupper() else ""
                if not public or re.search(rf"(?<!::)\b{re.escape(path[-1])}\b{variant}", rest):
                    yield path
        yield from (tuple(path.split("::")) for path in PATH.findall(rest))
        yield from ((head,) for head in re.findall(r"(?<![:\w])(\w+)::\w+", rest) if (*module, head) in self.code)

    def uses(self, module: Module) -> set[Module]:
        """The modules whose files define what this one's file names."""
        found = set()
        for path in self.named_in(module):
            absolute = self.absolute(module, path[:-1] if path[-1] == "*" else path)
            home = None if absolute is None else self.home(absolute)
            if home is not None and home != module:
                found.add(home)
        return found

    def arrows(self) -> dict[Module, set[Module]]:
        tests = {module for module in self.code if any(part == "tests" or part.endswith("_tests") for part in module)}
        return {module: self.uses(module) - tests for module in self.code if module not in tests}


class Package:
    """The Python files below a folder, by module, and the modules that each imports, inside functions, too."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.trees = {self.module(path): ast.parse(source) for path, source in sources.items()}
        self.inits = {self.module(path) for path in sources if path.endswith("__init__.py")}

    @staticmethod
    def module(path: str) -> Module:
        parts = path.removesuffix(".py").split("/")
        return tuple(parts[:-1] if parts[-1] == "__init__" else parts)

    def imported(self, module: Module) -> Iterator[tuple[str, Module]]:
        """Each name that a file imports from this package, as it calls it, with the path that it imports."""
        within = module if module in self.inits else module[:-1]
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                yield from ((alias.asname or alias.name, tuple(alias.name.split("."))) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                start = within[: len(within) - node.level + 1] if node.level else ()
                start += tuple((node.module or "").split(".")) if node.module else ()
                yield from ((alias.asname or alias.name, (*start, alias.name)) for alias in node.names)

    def home(self, path: Module) -> Module | None:
        """The file that defines what a path names, also where a package exports it again."""
        if path in self.trees:
            return path
        if not path or path[:-1] not in self.trees:
            return None
        if path[:-1] in self.inits:
            again = dict(self.imported(path[:-1])).get(path[-1])
            if again is not None and again != path:
                return self.home(again)
        return path[:-1]

    def uses(self, module: Module) -> set[Module]:
        """The modules that define what this one imports. A package does not use names that it only exports again."""
        named = {node.id for node in ast.walk(self.trees[module]) if isinstance(node, ast.Name)}
        found = {self.home(path) for name, path in self.imported(module) if module not in self.inits or name in named}
        return {home for home in found if home is not None} - {module}

    def arrows(self) -> dict[Module, set[Module]]:
        return {module: self.uses(module) for module in self.trees}


def circles(arrows: Mapping[Module, set[Module]]) -> list[set[str]]:
    """The largest sets of files of which each leads to each other."""
    reached: dict[Module, set[Module]] = {}
    for start in arrows:
        open_, seen = [start], set[Module]()
        while open_:
            more = arrows.get(open_.pop(), set()) - seen
            seen |= more
            open_.extend(more)
        reached[start] = seen
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in arrows if a in reached[a]}
    return [{"::".join(module) for module in circle} for circle in found]


def rooms_of(source: str) -> list[str]:
    """The rooms that a `lib.rs` or `mod.rs` declares, in its order."""
    return re.findall(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);", source, re.MULTILINE)


def upward(
    arrows: Mapping[Module, set[Module]], within: Module, rooms: list[str], storey: tuple[str, ...] = ()
) -> set[str]:
    """Arrows from a room to one that is declared below it; the rooms of one storey count as one."""
    depth = len(within)
    height = {room: rooms.index(storey[0]) if room in storey else at for at, room in enumerate(rooms)}

    def room(module: Module) -> str | None:
        return module[depth] if module[:depth] == within and len(module) > depth and module[depth] in height else None

    return {
        f"{'::'.join(a)} -> {'::'.join(b)}"
        for a, used in arrows.items()
        for b in used
        if (here := room(a)) and (there := room(b)) and height[there] > height[here]
    }


def test_the_rooms_of_the_network_are_declared_from_the_ground_up() -> None:
    sources = sources_of("reverie-net")
    rooms = rooms_of(sources["lib.rs"])
    assert len(rooms) > 10, rooms
    assert upward(Crate(sources).arrows(), (), rooms) == set()


def test_the_rooms_of_the_core_are_declared_from_the_ground_up() -> None:
    sources = sources_of("reverie-core")
    rooms = rooms_of(sources["lib.rs"])
    assert set(FLOW) < set(rooms), rooms
    assert upward(Crate(sources).arrows(), (), rooms, FLOW) == set()


def test_a_table_is_data_then_decisions_then_waiting() -> None:
    sources = sources_of("reverie-core")
    rooms = rooms_of(sources["table/mod.rs"])
    assert rooms == ["types", "policy", "waiting"]
    assert upward(Crate(sources).arrows(), ("table",), rooms) == set()


@pytest.mark.parametrize("crate", ["reverie-core", "reverie-net", "reverie-py"])
def test_no_files_of_a_crate_form_a_circle(crate: str) -> None:
    arrows = Crate(sources_of(crate)).arrows()
    assert sum(map(len, arrows.values())) > 150, "the arrows are not seen any more"
    assert circles(arrows) == []


def test_one_file_of_the_binding_asks_where_the_tables_are_and_one_begins_it() -> None:
    asking = {
        path for path, source in sources_of("reverie-py").items() if re.search(r"\bReplayBackend::", own_code(source))
    }
    assert asking == {"replay_backend.rs", "handle.rs"}


@pytest.mark.parametrize("room", ["types", "policy"])
def test_a_table_locks_waits_and_reads_the_clock_in_one_room(room: str) -> None:
    words = re.compile(r"\b(?:Mutex|Condvar|RwLock|Atomic\w+|Clock|Instant|SystemTime|crate::sync)\b")
    sources = {path: own_code(source) for path, source in sources_of("reverie-core").items()}
    inside = {path: code for path, code in sources.items() if path.startswith(f"table/{room}/")}
    assert inside, room
    assert {path: found for path, code in inside.items() if (found := words.findall(code))} == {}


@pytest.mark.parametrize("folder", ["python/reverie", "benchmarks"])
def test_no_files_of_a_package_form_a_circle(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    start = (ROOT / folder).parent if folder == "python/reverie" else ROOT
    arrows = Package({str(file.relative_to(start)): file.read_text() for file in files}).arrows()
    assert sum(map(len, arrows.values())) > len(arrows) / 4, "most imports were not followed"
    assert circles(arrows) == []


@pytest.mark.parametrize(
    "sources",
    [
        {"p/__init__.py": "", "p/a.py": "from p.b import B", "p/b.py": "def f():\n    from p import a"},
        {"p/__init__.py": "", "p/a.py": "import p.b", "p/b.py": "from . import a"},
        # Through a name that the package exports again.
        {"p/__init__.py": "from p.b import B", "p/a.py": "from p import B", "p/b.py": "from p.a import A"},
        {"p/__init__.py": "", "p/a.py": "from p.b import B", "p/b.py": "if TYPE_CHECKING:\n    from p.a import A"},
    ],
)
def test_a_planted_circle_of_imports_is_found(sources: dict[str, str]) -> None:
    assert circles(Package(sources).arrows()) == [{"p::a", "p::b"}]


def test_names_that_a_package_only_exports_again_make_no_circle() -> None:
    sources = {"p/__init__.py": "from p.b import B", "p/b.py": "from p import c", "p/c.py": "from p import __doc__"}
    assert circles(Package(sources).arrows()) == []


@pytest.mark.parametrize(
    ("sources", "circle"),
    [
        ({"a.rs": "use crate::b::B;", "b.rs": "use super::a::A; pub struct B;"}, {"a", "b"}),
        # A parent that uses its child, which uses its parent.
        ({"a.rs": "mod b;\nuse b::B;\npub struct A(B);", "a/b.rs": "use super::A;\npub struct B;"}, {"a", "a::b"}),
        # Through a name that another file exports again, and which itself uses nothing.
        (
            {
                "lib.rs": "mod a;\nmod c;\nmod b;",
                "a.rs": "use crate::c::{B as Other};\npub struct A;",
                "c/mod.rs": "mod b;\npub use b::B;",
                "c/b.rs": "pub struct B(crate::a::A);",
            },
            {"a", "c::b"},
        ),
    ],
)
def test_a_planted_circle_is_found(sources: dict[str, str], circle: set[str]) -> None:
    assert circles(Crate(sources).arrows()) == [circle]


@pytest.mark.parametrize(
    "sources",
    [
        {"a.rs": "use crate::b::B;", "b.rs": "// use crate::a::A;\npub struct B;"},
        {"a.rs": "mod b;\npub use b::B;\npub struct A;", "a/b.rs": "use super::A;\npub struct B;"},
        {"a.rs": "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}", "b.rs": "use crate::a::A;"},
    ],
)
def test_comments_tests_and_what_is_only_exported_again_make_no_circle(sources: dict[str, str]) -> None:
    assert circles(Crate(sources).arrows()) == []


def test_a_planted_arrow_upward_is_found() -> None:
    sources = {"lib.rs": "mod a;\npub mod b;", "a.rs": "fn f() { crate::b::g() }", "b/mod.rs": "pub fn g() {}"}
    arrows = Crate(sources).arrows()
    assert upward(arrows, (), rooms_of(sources["lib.rs"])) == {"a -> b"}
    assert upward(arrows, (), ["a", "b"], ("a", "b")) == set()


# Programs of tests that are one file, and why they cannot be modules of another.
ALONE = {
    "reverie-core": {
        "interleavings": "it has another lock",
        "tier_memory": "its allocator counts",
    },
    "reverie-net": {
        "heads": "its allocator counts",
        "local": "it starts itself as another process",
        "same_host": "client and server over a socket of the host, which is no word",
        "simulation": "its number is set for it alone",
        "slice": "client and server over gRPC, which is no word",
    },
}


@pytest.mark.parametrize("crate", ALONE)
def test_a_test_is_a_module_of_the_program_for_its_word(crate: str) -> None:
    """Each program links the crate again, a second of a processor for some lines of a test."""
    folder = CRATES / crate / "tests"
    assert {path.stem for path in folder.glob("*.rs")} == set(ALONE[crate])
    # A file that no `main.rs` names is never compiled.
    for program in folder.glob("*/main.rs"):
        named = set(re.findall(r"^mod (\w+);", program.read_text(), re.MULTILINE))
        assert {path.stem for path in program.parent.glob("*.rs")} - {"main"} <= named, program
