"""The journal from Python: its settings, its folder, and servers in this process."""

import logging
import pickle

import numpy as np
import pytest

import reverie
from reverie import Journal, Server, Table, checkpointers, rate_limiters, selectors
from reverie.checkpointers import DefaultCheckpointer


def per():
    return Table("per", selectors.Prioritized(1.0), selectors.Fifo(), 100, rate_limiters.MinSize(1))


def begin(folder, **options):
    return Server([per()], listen=False, journal=Journal(folder, **options))


def fill(client, count=20):
    return client.insert_batch("per", {"x": np.arange(count)}, priorities=np.arange(1.0, count + 1))


def test_a_server_starts_with_what_the_stopped_one_had(tmp_path, caplog):
    with begin(tmp_path) as server:
        client = server.client()
        keys = fill(client)
        client.update_priorities("per", keys[:1], [50.0])
        client.delete("per", keys[5:7])
    with caplog.at_level(logging.INFO, "reverie"), begin(tmp_path) as server:
        found = server.client().get("per", [keys[0], keys[19]])
        assert found.data["x"].tolist() == [0, 19]
        assert found.info.priority.tolist() == [50.0, 20.0]
        assert server.client().info().tables["per"].current_size == 18
        # Keys are given once, also across a start.
        assert not set(fill(server.client()).tolist()) & set(keys.tolist())
    assert "commits of the journal after it" in caplog.text
    assert "18 items of 'per'" in caplog.text


@pytest.mark.parametrize("sync", ["os", "interval"])
@pytest.mark.parametrize("listens", [False, True])
def test_a_draw_that_uses_items_up_and_only_tries_answers_with_a_journal(tmp_path, sync, listens):
    queue = Table("queue", selectors.Fifo(), selectors.Fifo(), 100, rate_limiters.MinSize(1), max_times_sampled=1)
    listen = {"port": 0} if listens else {"listen": False}
    with Server([queue], journal=Journal(tmp_path, sync=sync, interval=3600.0), **listen) as server:
        client = reverie.Client(f"localhost:{server.port}", transport="grpc") if listens else server.client()
        client.insert_batch("queue", {"x": np.arange(8)}, timeout=None if listens else 0)
        for first in range(0, 8, 2):
            assert client.sample_batch("queue", 2, timeout=0).data["x"].tolist() == [first, first + 1]
        with pytest.raises(reverie.DeadlineExceededError) as caught:
            client.sample_batch("queue", 2, timeout=0)
        assert caught.value.partial is None or len(caught.value.partial) == 0


def test_a_last_checkpoint_has_all_and_the_journal_goes_on_after_it(tmp_path):
    with begin(tmp_path) as server:
        fill(server.client())
        assert server.stop(checkpoint=True).startswith(str(tmp_path))
    with begin(tmp_path) as server:
        assert server.client().info().tables["per"].current_size == 20
        fill(server.client(), 5)
    with begin(tmp_path) as server:
        assert server.client().info().tables["per"].current_size == 25


def test_checkpoints_of_the_client_shorten_the_journal(tmp_path):
    with begin(tmp_path) as server:
        client = server.client()
        for _ in range(20):
            fill(client, 100)
        before = sum(path.stat().st_size for path in tmp_path.iterdir())
        client.checkpoint()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < before


def test_a_checkpoint_of_a_folder_without_a_journal_is_where_one_begins(tmp_path):
    with Server([per()], listen=False, checkpointer=DefaultCheckpointer(tmp_path)) as server:
        keys = fill(server.client())
        server.client().checkpoint()
    with begin(tmp_path) as server:
        assert server.client().get("per", keys[:1]).data["x"].tolist() == [0]


@pytest.mark.parametrize("restore_config", ["constructor", "checkpoint"])
def test_a_server_without_the_journal_does_not_start_where_it_has_more_than_the_checkpoint(tmp_path, restore_config):
    folder = tmp_path / "journal"
    with begin(folder) as server:
        fill(server.client())
        server.stop(checkpoint=True)
    checkpointer = DefaultCheckpointer(folder)
    with Server([per()], None, checkpointer, listen=False, restore_config=restore_config) as server:
        assert server.tables[0].info.current_size == 20, "the checkpoint has all"
    with begin(folder) as server:
        fill(server.client())
    files = sorted(folder.iterdir())
    with pytest.raises(
        ValueError, match=r"1 commit after it would be lost; start .* journal=reverie.Journal"
    ) as refused:
        Server([per()], None, checkpointer, listen=False, restore_config=restore_config)
    assert sorted(folder.iterdir()) == files
    # As the error advises.
    path = str(refused.value).rsplit("fallback_checkpoint_path='")[1].rstrip("'")
    other = DefaultCheckpointer(tmp_path / "other", fallback_checkpoint_path=path)
    with Server([per()], None, other, listen=False, restore_config=restore_config) as server:
        assert server.tables[0].info.current_size == 20
    with begin(folder) as server:
        assert server.tables[0].info.current_size == 40


def test_the_fallback_of_a_checkpointer_is_where_a_journal_begins(tmp_path):
    with Server([per()], listen=False, checkpointer=DefaultCheckpointer(tmp_path / "old")) as server:
        fill(server.client())
        path = server.client().checkpoint()
    checkpointer = DefaultCheckpointer(tmp_path / "new", fallback_checkpoint_path=path)
    for size in (20, 25):
        with Server([per()], None, checkpointer, listen=False, journal=Journal(tmp_path / "new")) as server:
            assert server.client().info().tables["per"].current_size == size
            fill(server.client(), 5)


def test_two_servers_on_one_folder_are_refused(tmp_path):
    with begin(tmp_path), pytest.raises(reverie.StorageError, match="another server saves there"):
        begin(tmp_path)
    begin(tmp_path).stop()


def test_a_start_with_other_tables_names_what_was_added_removed_and_changed(tmp_path, caplog):
    queue = Table.queue("queue", 10)
    with Server([per(), queue], listen=False, journal=Journal(tmp_path)) as server:
        keys = fill(server.client())
        server.client().insert_batch("queue", {"x": np.arange(3)})
    wide = {"x": reverie.specs.TensorSpec((), np.int64)}
    signed = Table("per", selectors.Prioritized(1.0), selectors.Fifo(), 100, rate_limiters.MinSize(1), signature=wide)
    others = lambda: [signed.replace(), Table.queue("new", 10)]  # noqa: E731
    with caplog.at_level(logging.WARNING, "reverie"):
        server = Server(others(), listen=False, journal=Journal(tmp_path))
    with server:
        client = server.client()
        assert client.get("per", keys).data["x"].tolist() == list(range(20))
        assert client.info().tables["new"].current_size == 0
    for words in (
        "table 'queue': its 3 items were left out, as the server has no such table",
        "table 'new': empty, as the checkpoint has no such table",
        "table 'per': signature is ",
    ):
        assert words in caplog.text
    narrow = {"x": reverie.specs.TensorSpec((2,), np.float32)}
    refusing = Table("per", selectors.Uniform(), selectors.Fifo(), 100, rate_limiters.MinSize(1), signature=narrow)
    with pytest.raises(reverie.SignatureError, match="column 'x': got int64"):
        Server([refusing], listen=False, journal=Journal(tmp_path))
    # The refused start changed nothing.
    with Server(others(), listen=False, journal=Journal(tmp_path)) as server:
        assert server.client().info().tables["per"].current_size == 20


def test_a_damaged_journal_is_refused_by_file_and_offset(tmp_path):
    with begin(tmp_path) as server:
        fill(server.client())
        fill(server.client())
    segment = max(tmp_path.glob("*.segment"))
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    # The last commit records that everything before it was on the disk.
    with pytest.raises(reverie.DamagedError) as refused:
        begin(tmp_path)
    assert segment.name in str(refused.value)


def test_a_record_that_is_not_whole_at_the_end_is_left_out_and_logged(tmp_path, caplog):
    with begin(tmp_path) as server:
        fill(server.client())
    segment = max(tmp_path.glob("*.segment"))
    segment.write_bytes(segment.read_bytes() + b"half of a record")
    with caplog.at_level(logging.WARNING, "reverie"), begin(tmp_path) as server:
        assert server.client().info().tables["per"].current_size == 20
    assert "within a record that was never acknowledged" in caplog.text


@pytest.mark.parametrize("sync", ["os", "interval", "always"])
def test_a_queue_gives_each_item_once_over_a_stop(tmp_path, sync):
    for drawn in ([0, 1, 2], [3, 4, 5]):
        with Server([Table.queue("q", 10)], listen=False, journal=Journal(tmp_path, sync=sync)) as server:
            client = server.client()
            if drawn[0] == 0:
                client.insert_batch("q", {"x": np.arange(6)})
            assert client.sample_batch("q", 3).data["x"].tolist() == drawn


def test_settings_are_kept_and_bad_ones_refused(tmp_path):
    journal = Journal(tmp_path, sync="always", interval=2.5, max_unsynced_bytes=7, checkpoint_period=None)
    again = pickle.loads(pickle.dumps(journal))
    for one in (journal, again):
        assert (one.path, one.sync, one.interval) == (str(tmp_path), "always", 2.5)
        assert (one.max_unsynced_bytes, one.checkpoint_period) == (7, None)
    assert repr(journal) == repr(again)
    assert "sync='always'" in repr(journal)
    for options in ({"sync": "often"}, {"interval": 0}, {"max_unsynced_bytes": 0}, {"checkpoint_period": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Journal(tmp_path, **options)
    with pytest.raises(TypeError, match=r"a reverie\.Journal"):
        Server([per()], listen=False, journal=str(tmp_path))


def test_a_checkpointer_of_another_folder_is_refused(tmp_path):
    other = DefaultCheckpointer(tmp_path / "other")
    with pytest.raises(ValueError, match="in one folder"):
        Server([per()], None, other, listen=False, journal=Journal(tmp_path))


def test_the_period_of_the_checkpoints_is_that_of_the_journal_or_of_the_checkpointer(tmp_path):
    of = checkpointers.of_journal
    assert of(Journal(tmp_path, checkpoint_period=7.0), None).period == 7.0
    own = DefaultCheckpointer(tmp_path, period=3.0)
    assert of(Journal(tmp_path), own) is own


def test_a_configured_limit_is_there_after_a_start_unless_the_constructor_changed(tmp_path, caplog):
    def sized(max_size):
        return Table("per", selectors.Prioritized(1.0), selectors.Fifo(), max_size, rate_limiters.MinSize(1))

    def start(max_size, **options):
        return Server([sized(max_size)], listen=False, journal=Journal(tmp_path), **options)

    with start(100) as server:
        fill(server.client())
        server.client().configure("per", max_size=15)
    for max_size, wanted in ((100, 15), (50, 50)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "reverie"), start(max_size) as server:
            assert server.client().info().tables["per"].max_size == wanted
            assert server.client().info().tables["per"].current_size == 15
        assert ("max_size is 50, the checkpoint's was 15" in caplog.text) == (wanted == 50)


def test_saved_limits_are_those_after_the_last_checkpoint_with_restore_config_checkpoint(tmp_path):
    with begin(tmp_path) as server:
        server.client().configure("per", max_size=40)
        server.client().checkpoint()
        server.client().configure("per", max_size=30)
    with Server([per()], listen=False, journal=Journal(tmp_path), restore_config="checkpoint") as server:
        assert server.client().info().tables["per"].max_size == 30


def test_info_shows_the_journal_and_none_without_one(tmp_path):
    with begin(tmp_path, sync="always") as server:
        fill(server.client())
        journal = server.client().info().journal
    assert (journal.sync, journal.error, journal.is_full) == ("always", None, False)
    assert journal.syncs >= 1
    assert journal.rounds >= 1
    assert 0 < journal.longest_sync_seconds <= journal.sync_seconds
    with Server([per()], listen=False) as server:
        assert server.client().info().journal is None
