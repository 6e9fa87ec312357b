import json

import numpy as np
import pytest

testing = pytest.importorskip("typer.testing")
pytest.importorskip("matplotlib")

from reverie import Server, Table, TensorSpec, selectors  # noqa: E402
from reverie.checkpointers import DefaultCheckpointer  # noqa: E402
from reverie.cli.app import app  # noqa: E402


def run(*arguments):
    return testing.CliRunner().invoke(app, ["checkpoint", *map(str, arguments)])


@pytest.fixture
def saved(tmp_path):
    """A folder with two checkpoints of a table "t", of 3 items and of 7."""
    table = Table(
        "t", selectors.Prioritized(0.5), selectors.Fifo(), 50, signature={"x": TensorSpec((None, 2), np.float32)}
    )
    with Server([table], checkpointer=DefaultCheckpointer(tmp_path / "saved"), listen=False) as server:
        client = server.client()
        for count in (3, 4):
            client.insert_batch("t", {"x": np.ones((count, 5, 2), np.float32)})
            client.checkpoint()
    return tmp_path / "saved"


def damage(path):
    changed = bytearray(path.read_bytes())
    changed[40] ^= 1
    path.write_bytes(changed)


def test_ls_names_every_checkpoint_oldest_first_with_its_items(saved):
    result = run("ls", saved)
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first.startswith(str(saved / "0000000001.checkpoint"))
    assert first.endswith("items: t 3")
    assert second.endswith("items: t 7")
    found = json.loads(run("ls", saved, "--json").stdout)["checkpoints"]
    assert [one["number"] for one in found] == [1, 2]
    assert [one["tables"][0]["size"] for one in found] == [3, 7]


def test_show_prints_the_options_of_the_newest_as_a_user_writes_them(saved):
    result = run("show", saved)
    assert result.exit_code == 0, result.output
    for words in ("Prioritized(priority_exponent=0.5)", "Fifo()", "max_size           50", "float32 [None, 2]"):
        assert words in result.stdout
    shown = json.loads(run("show", saved / "0000000001.checkpoint", "--json").stdout)
    assert shown["tables"][0]["size"] == 3
    assert shown["tables"][0]["signature"] == {"x": "float32 [None, 2]"}


def test_verify_reads_all_and_counts_what_it_read(saved):
    result = run("verify", saved)
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["intact", "intact"]
    found = json.loads(run("verify", saved, "--json").stdout)["checkpoints"]
    assert [one["num_items"] for one in found] == [3, 7]


def test_damage_is_named_with_its_file_and_place_and_the_exit_code_is_1(saved):
    segment = saved / "0000000001.segment"
    damage(segment)
    result = run("verify", saved)
    assert result.exit_code == 1
    assert f"{segment} is damaged at byte 20" in result.stdout
    (first, second) = json.loads(run("verify", saved, "--json").stdout)["checkpoints"]
    assert first["damage"] == {"file": str(segment), "what": "a chunk is not what was written", "offset": 20}
    assert second["num_items"] == 7, "its open chunk had grown, and was written again"
    assert run("ls", saved).exit_code == 0, "what is read of it is whole"
    damage(saved / "0000000002.checkpoint")
    for command in ("ls", "show"):
        result = run(command, saved)
        assert result.exit_code == 1
        assert "0000000002.checkpoint at byte" in result.stdout
        assert run(command, saved, "--json").exit_code == 1


def test_a_path_without_a_checkpoint_is_refused_with_exit_code_2(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        for command in ("ls", "show", "verify"):
            result = run(command, path)
            assert result.exit_code == 2
            assert str(path) in result.stderr
