import sys

import pytest

from reverie import rate_limiters, selectors

pytest.importorskip("typer")
from reverie.cli import table_files

FULL = """
[[tables]]
name = "replay"
max_size = 500
sampler = { kind = "prioritized", priority_exponent = 0.7, seed = 3 }
remover = "lifo"
max_times_sampled = 4
max_bytes = 1_000_000
compression = "lz4"
rate_limiter = { kind = "sample_to_insert_ratio", samples_per_insert = 2.0, min_size_to_sample = 10, error_buffer = 20 }
signature = { obs = { shape = [-1, 3], dtype = "float32" }, more = { done = { shape = [], dtype = "bool" } } }

[[tables]]
name = "queue"
max_size = 5
sampler = "fifo"
max_times_sampled = 1
rate_limiter = { kind = "queue", size = 5 }
"""


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, errors="surrogateescape")
        return str(path)

    return write


def test_toml_describes_every_option_of_a_table(written):
    replay, queue = table_files.load(written("tables.toml", FULL))
    assert (replay.name, replay.max_size, replay.max_times_sampled, replay.max_bytes) == ("replay", 500, 4, 1_000_000)
    assert replay.sampler == selectors.Prioritized(0.7, seed=3)
    assert replay.remover == selectors.Lifo()
    assert replay.compression == "lz4"
    assert replay.rate_limiter == rate_limiters.SampleToInsertRatio(2.0, 10, 20)
    assert replay.signature["obs"].shape == (None, 3)
    assert str(replay.signature["more"]["done"].dtype) == "bool"
    assert (queue.sampler, queue.remover) == (selectors.Fifo(), selectors.Fifo())
    assert queue.rate_limiter == rate_limiters.Queue(5)


def test_yaml_describes_the_same_options(written):
    pytest.importorskip("yaml")
    text = "tables:\n- name: t\n  max_size: 7\n  sampler: {kind: prioritized, priority_exponent: 0.5}\n"
    (table,) = table_files.load(written("tables.yaml", text))
    assert (table.name, table.max_size, table.sampler) == ("t", 7, selectors.Prioritized(0.5))
    assert table.rate_limiter == rate_limiters.MinSize(1)


@pytest.mark.parametrize(("name", "behind"), [("tables", ""), ("make_tables", ""), ("mine", ":mine")])
def test_a_python_file_gives_a_list_or_a_function_that_makes_one(written, name, behind):
    for call in ("{0} = {1}", "def {0}():\n    return {1}"):
        text = "import reverie\n" + call.format(name, "[reverie.Table.queue('q', 3)]")
        (table,) = table_files.load(written("setup.py", text) + behind)
        assert (table.name, table.max_size) == ("q", 3)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.toml", "tables = 3", "a list named 'tables'"),
        ("t.toml", "tables = [", "t.toml"),
        ("t.toml", "[[tables]]\nname='x'", "table 0: missing max_size"),
        ("t.toml", "[[tables]]\nname='x'\nmax_size=1\nsize=2", "table 0: unknown 'size'; did you mean 'max_size'"),
        ("t.toml", "[[tables]]\nname='x'\nmax_size=1\nqqq=2", "table 0: unknown 'qqq'; known are name, max_size"),
        ("t.toml", "[[table]]\nname='x'", "unknown 'table'; did you mean 'tables'"),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nsampler='random'",
            "sampler: unknown kind 'random'; known are fifo",
        ),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nsampler='prioritised'",
            "unknown kind .*did you mean 'prioritized'",
        ),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nsampler='prioritized'",
            "'prioritized': missing priority_exponent",
        ),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nsampler={kind='prioritized', exponent=1}",
            "sampler 'prioritized': unknown 'exponent'; did you mean 'priority_exponent'",
        ),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nsampler={kind='prioritized', priority_exponent='0.6'}",
            "sampler: priority_exponent must be a number, got '0.6'",
        ),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nrate_limiter={kind='min_size', min_size=3}",
            "rate_limiter 'min_size': unknown 'min_size'; did you mean 'min_size_to_sample'",
        ),
        ("t.toml", "[[tables]]\nname='x'\nmax_size=1\nsampler={seed=1}", "table 0, sampler: kind must be one of"),
        ("t.toml", "[[tables]]\nname='x'\nmax_size=0", "table 0: max_size"),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nremover={kind='fifo', exponent=1}",
            "table 0, remover 'fifo': unknown 'exponent'; known are seed",
        ),
        (
            "t.toml",
            "[[tables]]\nname='x'\nmax_size=1\nsignature={o={shape='3',dtype='int8'}}",
            "signature/o: shape must",
        ),
        ("t.toml", "[[tables]]\nname='x'\nmax_size=1\nsignature={o={shape=[3],dtype='int9'}}", "signature/o: .*int9"),
        ("t.json", "{}", ".py, .toml, .yaml or .yml"),
        ("t.py", "other = 1", "defines no 'tables' and no 'make_tables'"),
        ("t.py", "tables = [1]", "must be a list of reverie.Table"),
        ("t.py", "import reverie\n\n\n1 / 0", "t.py, line 4: ZeroDivisionError: division by zero"),
        ("t.py", "x = 1\ndef f(:\n", "t.py, line 2: SyntaxError: invalid syntax"),
        (
            "t.py",
            "import reverie\ndef tables():\n    return reverie.Table.queue('', 3)",
            "t.py, line 3: ValueError: name",
        ),
        ("t.toml", "\udcff", "t.toml: .*utf-8"),
    ],
)
def test_errors_in_a_file_are_reported_with_their_place(written, name, text, words):
    with pytest.raises(ValueError, match=words):
        table_files.load(written(name, text))


def test_yaml_is_refused_with_its_line(written):
    pytest.importorskip("yaml")
    for text, words in (("tables:\n  - [", "t.yaml, line 2"), ("\udcff", "t.yaml: .*utf-8")):
        with pytest.raises(ValueError, match=words):
            table_files.load(written("t.yaml", text))


def test_a_python_file_may_import_modules_in_its_folder(written, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    written("lies_beside.py", "import reverie\nmine = [reverie.Table.queue('q', 3)]")
    (table,) = table_files.load(written("t.py", "from lies_beside import mine as tables"))
    assert table.name == "q"


def test_only_a_python_file_has_a_name_after_a_colon(written):
    with pytest.raises(ValueError, match="only a Python file"):
        table_files.load(written("t.toml", FULL) + ":tables")
