import json
from pathlib import Path

import numpy as np
import pytest

testing = pytest.importorskip("typer.testing")
pytest.importorskip("matplotlib")

from reverie import Journal, Server, Table, TensorSpec, _native, selectors  # noqa: E402
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


@pytest.fixture
def journaled(tmp_path):
    """The folder of a journal with five commits of ten items each, after a checkpoint of none."""
    folder = tmp_path / "journaled"
    with Server([Table.queue("q", 100)], listen=False, journal=Journal(folder)) as server:
        for start in range(0, 50, 10):
            server.client().insert_batch("q", {"x": np.arange(start, start + 10)})
    return folder


def items_of(folder):
    with Server([Table.queue("q", 100)], listen=False, checkpointer=DefaultCheckpointer(folder)) as server:
        size = server.client().info().tables["q"].current_size
        return server.client().sample_batch("q", size).data["x"].tolist() if size else []


def test_verify_reads_a_journal_and_counts_its_items(journaled):
    result = run("verify", journaled)
    assert result.exit_code == 0, result.output
    assert "intact   the journal in" in result.stdout
    assert "50 items in" in result.stdout
    journal = json.loads(run("verify", journaled, "--json").stdout)["journal"]
    assert (journal["num_items"], journal["torn"]) == (50, None)
    assert journal["num_commits"] >= 5


def test_verify_names_the_end_of_a_journal_that_is_not_whole(journaled):
    segment = max(journaled.glob("*.segment"))
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + b"half of a record")
    result = run("verify", journaled)
    assert result.exit_code == 0
    assert f"{segment.name} ends at byte {size} within a record" in result.stdout


def test_verify_names_a_journals_damage_and_repair_saves_what_is_before_it(journaled, tmp_path):
    segment = max(journaled.glob("*.segment"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    before = {path.name: path.read_bytes() for path in journaled.iterdir()}
    verified = run("verify", journaled)
    assert verified.exit_code == 1
    assert "damaged  the journal in" in verified.stdout
    assert segment.name in verified.stdout

    repaired = run("repair", journaled, "--to", tmp_path / "new")
    assert repaired.exit_code == 1, repaired.output
    assert "lost     the journal is left out from this place on" in repaired.stdout
    items = items_of(tmp_path / "new")
    assert items == list(range(len(items)))
    assert 0 < len(items) < 50
    assert {path.name: path.read_bytes() for path in journaled.iterdir()} == before
    assert run("verify", tmp_path / "new").exit_code == 0
    assert run("repair", journaled, "--to", tmp_path / "new").exit_code == 2


def test_repair_of_a_whole_folder_loses_nothing(journaled, tmp_path):
    result = run("repair", journaled, "--to", tmp_path / "new", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["losses"] == []
    assert items_of(tmp_path / "new") == list(range(50))


def test_repair_leaves_out_the_items_of_a_damaged_chunk(tmp_path):
    folder = tmp_path / "saved"
    with Server([Table.queue("q", 100)], checkpointer=DefaultCheckpointer(folder), listen=False) as server:
        for values in (range(3), range(3, 7)):
            # Each client has chunks of its own.
            server.client().insert_batch("q", {"x": np.array(values)})
        server.client().checkpoint()
    damage(max(folder.glob("*.segment")))
    result = run("repair", folder, "--to", tmp_path / "new", "--json")
    assert result.exit_code == 1, result.output
    assert "table 'q': 3 items left out" in json.loads(result.stdout)["losses"][0]
    assert items_of(tmp_path / "new") == [3, 4, 5, 6]


def test_repair_uses_an_older_checkpoint_where_the_newest_is_damaged(saved, tmp_path):
    damage(saved / "0000000002.checkpoint")
    result = run("repair", saved, "--to", tmp_path / "new", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["num_items"] == 3
    assert "a checkpoint is damaged and was not used" in found["losses"][0]


def test_a_journal_without_its_checkpoint_is_refused_by_every_start_and_repaired_from_its_commits(tmp_path):
    folder = tmp_path / "kept"
    table = Table("q", selectors.Fifo(), selectors.Fifo(), 50)
    with Server([table], journal=Journal(folder), listen=False) as server:
        server.client().insert_batch("q", {"x": np.arange(5)})
    (folder / "0000000001.checkpoint").unlink()
    segments = {path.name: path.read_bytes() for path in folder.glob("*.segment")}
    for options in ({"journal": Journal(folder)}, {"checkpointer": DefaultCheckpointer(folder)}):
        with pytest.raises(ValueError, match="commits of a journal, from number 1 on, and no checkpoint"):
            Server([table.replace()], listen=False, **options)
    verified = run("verify", folder)
    assert verified.exit_code == 2
    assert "commits of a journal" in verified.output
    assert {path.name: path.read_bytes() for path in folder.glob("*.segment")} == segments
    result = run("repair", folder, "--to", tmp_path / "new", "--json")
    assert result.exit_code == 1, result.output
    assert json.loads(result.stdout)["num_items"] == 5


def test_repair_without_a_readable_checkpoint_saves_nothing(saved, tmp_path):
    for path in saved.glob("*.checkpoint"):
        damage(path)
    assert run("repair", saved, "--to", tmp_path / "new").exit_code == 2
    assert not (tmp_path / "new").exists()
    assert run("repair", tmp_path / "none", "--to", tmp_path / "new").exit_code == 2


def test_a_folder_whose_journal_a_server_writes_is_refused_and_a_checkpoints_file_is_not(tmp_path):
    folder, new = tmp_path / "journaled", tmp_path / "new"
    with Server([Table.queue("q", 100)], listen=False, journal=Journal(folder)) as server:
        server.client().insert_batch("q", {"x": np.arange(10)})
        for arguments in (["verify", folder], ["verify", folder, "--json"], ["repair", folder, "--to", new]):
            result = run(*arguments)
            assert (result.exit_code, result.stdout) == (2, "")
            assert "a server writes there" in result.stderr
            assert "wait until it has ended" in result.stderr
        assert run("verify", next(folder.glob("*.checkpoint"))).exit_code == 0
        assert run("ls", folder).exit_code == 0
    assert run("verify", folder).exit_code == 0
    assert run("repair", folder, "--to", new).exit_code == 0


def test_a_checkpoint_that_its_server_removes_meanwhile_is_no_damage(saved, monkeypatch):
    listed = _native.list_checkpoints

    def list_then_remove(root):
        found = listed(root)
        (saved / "0000000001.checkpoint").unlink(missing_ok=True)
        return [str(saved / "0000000001.checkpoint"), found[-1]]

    monkeypatch.setattr(_native, "list_checkpoints", list_then_remove)
    for command in ("ls", "verify"):
        result = run(command, saved)
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1), result.output
        assert "0000000002.checkpoint" in result.stdout


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_a_command_whose_checkpoints_were_all_removed_meanwhile_is_refused_with_what_to_do(saved, monkeypatch, command):
    monkeypatch.setattr(_native, "list_checkpoints", lambda root: [str(saved / "0000000009.checkpoint")])
    result = run(command, saved)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "try again" in result.stderr


def test_a_checkpoint_whose_journal_was_removed_with_a_newer_one_is_refused_with_ways_to_go_on(tmp_path):
    folder, new = tmp_path / "journaled", tmp_path / "new"
    keeps = DefaultCheckpointer(folder, keep=2)
    rows = {"x": np.arange(10)}
    with Server([Table.queue("q", 100)], None, keeps, listen=False, journal=Journal(folder)) as server:
        client = server.client()
        client.insert_batch("q", rows)
        older = client.checkpoint()
        # The next checkpoint removes the data of these commits.
        client.insert_batch("q", rows)
        client.sample_batch("q", 20)
        newest = client.checkpoint()
        client.insert_batch("q", rows)
    Path(newest).unlink()
    result = run("verify", folder)
    assert result.exit_code == 2
    assert "cannot be continued" in result.stderr
    with pytest.raises(ValueError, match="cannot be continued"):
        Server([Table.queue("q", 100)], listen=False, journal=Journal(folder))
    starts = DefaultCheckpointer(new, fallback_checkpoint_path=older)
    with Server([Table.queue("q", 100)], None, starts, listen=False, journal=Journal(new)) as server:
        assert server.client().info().tables["q"].current_size == 10
    repaired = run("repair", folder, "--to", tmp_path / "repaired")
    assert repaired.exit_code == 1
    assert "cannot be continued" in repaired.stdout
