"""Writers of sequences and episodes for environments that step together."""

import contextlib
import pickle

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors
from reverie.writers import VectorWriter, vector

pytestmark = pytest.mark.one_table_only("its tables delete sampled items: shards refuse them")


@pytest.fixture
def client(connect):
    fifo = Table("t", selectors.Fifo(), selectors.Fifo(), 1000, rate_limiters.MinSize(1))
    return connect(fifo, fifo.replace(name="alone"), Table.queue("q", 1))


def items(client, table):
    """The items of a table as (environment, steps), in order of insertion within each environment."""
    found = client.get(table, client.query(table).key, ragged="values")
    ends = np.cumsum(found.lengths)
    rows = np.split(found.data["x"], ends[:-1])
    return sorted((row[0, 0].item(), row[:, 1].tolist()) for row in rows)


def steps(num_envs, lengths, seed):
    """Steps `[num_envs, 2]` of episodes of these lengths, one behind the other, and which environments end with it."""
    rng = np.random.default_rng(seed)
    left = rng.choice(lengths, num_envs)
    for number in range(40):
        left -= 1
        yield np.stack([np.arange(num_envs), np.full(num_envs, number)], axis=1), left == 0
        left[left == 0] = rng.choice(lengths, (left == 0).sum())


@pytest.mark.parametrize("tail", ["short", "shift", "drop"])
def test_each_environment_has_the_sequences_that_a_writer_of_its_own_makes(client, tail):
    options = {"length": 4, "period": 2, "burn_in": 1, "tail": tail}
    with client.sequence_writer("t", num_envs=3, autoreset="disabled", **options) as together:
        alone = [client.sequence_writer("alone", **options) for _ in range(3)]
        for x, ended in steps(3, [1, 3, 6, 9], seed=1):
            sent = together.append({"x": x}, ended=ended)
            for env, writer in enumerate(alone):
                complete = writer.append({"x": x[env]})
                before = writer.num_dropped
                if ended[env]:
                    writer.end_episode(timeout=200)
                assert sent[env] or not complete or before != writer.num_dropped
        assert together.episode_steps.tolist() == [writer.episode_steps for writer in alone]
        assert [writer.num_dropped for writer in together.writers] == [writer.num_dropped for writer in alone]
        together.end_episodes(timeout=200)
        for writer in alone:
            writer.end_episode(timeout=200)
    assert items(client, "t") == items(client, "alone")
    assert len(items(client, "t")) > 20


def test_each_environment_has_its_episodes_and_where_leaves_rows_out(client):
    with client.episode_writer("t", num_envs=2, autoreset="disabled") as writer:
        assert writer.num_envs == 2
        writer.append({"x": np.array([[0, 0], [1, 0]])})
        ended = writer.append({"x": np.array([[0, 1], [1, 1]])}, ended=np.array([True, False]))
        assert ended.tolist() == [True, False]
        writer.append({"x": np.array([[0, -1], [1, 2]])}, where=np.array([False, True]))
        assert writer.episode_steps.tolist() == [0, 3]
        writer.end_episodes(np.array([True, False]), timeout=200)
        assert writer.episode_steps.tolist() == [0, 3]
        writer.end_episodes(timeout=200)
        assert writer.num_in_flight == 0
    assert items(client, "t") == [(0, [0, 1]), (1, [0, 1, 2])]


def test_under_next_step_autoreset_the_row_after_an_end_is_no_step(client):
    with client.episode_writer("t", num_envs=2, autoreset="next_step") as writer:
        ends = [(False, False), (True, False), (False, True), (False, False), (True, True)]
        for number, ended in enumerate(ends):
            writer.append({"x": np.array([[0, number], [1, number]])}, ended=np.array(ended))
        with pytest.raises(
            ValueError, match=r"environment 1 has no step to end with .autoreset is .next_step., and this"
        ):
            writer.append({"x": np.array([[0, 9], [1, 9]])}, ended=np.array([False, True]))
        writer.append({"x": np.array([[0, 9], [1, 9]])}, where=np.array([True, False]))
        writer.append({"x": np.array([[0, 10], [1, 10]])})
        writer.end_episodes(timeout=200)
        writer.append({"x": np.array([[0, 20], [1, 20]])}, ended=np.array([True, True]))
        writer.end_episodes()
        writer.append({"x": np.array([[0, 30], [1, 30]])})
        writer.end_episodes(timeout=200)
    first = [(0, [0, 1]), (0, [3, 4]), (0, [10]), (0, [20]), (0, [30])]
    second = [(1, [0, 1, 2]), (1, [4]), (1, [10]), (1, [20]), (1, [30])]
    assert items(client, "t") == [*first, *second]


def test_masks_belong_to_the_caller_and_may_be_used_again(client):
    ended = np.zeros(2, bool)
    with client.episode_writer("t", num_envs=2, autoreset="next_step") as writer:
        for number, ends in enumerate([(True, False), (False, True), (False, False), (False, False)]):
            ended[:] = ends
            writer.append({"x": np.array([[0, number], [1, number]])}, ended=ended)
        ended[:] = True
        ended.flags.writeable = False
        writer.append({"x": np.array([[0, 4], [1, 4]])}, ended=ended)
        writer.end_episodes(timeout=200)
        assert ended.all()
    assert items(client, "t") == [(0, [0]), (0, [2, 3, 4]), (1, [0, 1]), (1, [3, 4])]


@pytest.mark.parametrize("autoreset", ["same_step", "disabled"])
def test_under_other_autoreset_every_row_is_a_step(client, autoreset):
    with client.episode_writer("t", num_envs=1, autoreset=autoreset) as writer:
        for number in range(3):
            writer.append({"x": np.array([[0, number]])}, ended=np.array([number == 1]))
        writer.end_episodes(timeout=200)
    assert items(client, "t") == [(0, [0, 1]), (0, [2])]


def test_ends_need_the_mode_of_the_environments_or_a_mask_of_steps(client):
    writer = client.episode_writer("t", num_envs=1)
    ends = np.array([True])
    with pytest.raises(ValueError, match=r"ended needs the mode of the environments.* autoreset="):
        writer.append({"x": np.array([[0, 0]])}, ended=ends)
    writer.append({"x": np.array([[0, 0]])}, ended=ends, where=ends)
    writer.append({"x": np.array([[0, 1]])}, ended=ends, where=ends)
    writer.flush(timeout=200)
    assert items(client, "t") == [(0, [0]), (0, [1])]
    with pytest.raises(ValueError, match="autoreset must be one of 'next_step', 'same_step', 'disabled', got 'never'"):
        client.sequence_writer("t", 1, 1, num_envs=1, autoreset="never")
    with pytest.raises(ValueError, match="autoreset is 'disabled', and it is for several environments: set num_envs"):
        client.sequence_writer("t", 1, 1, autoreset="disabled")


def test_a_flush_waits_until_so_many_items_of_all_environments_remain(client):
    writer = client.episode_writer("q", num_envs=3, autoreset="disabled")
    for _ in range(2):
        writer.append({"x": np.zeros(3)}, ended=np.ones(3, bool))
    writer.flush(5, timeout=200)
    assert (writer.num_sent, writer.num_in_flight, writer.num_dropped) == (6, 5, 0)
    for remain in (4, 0):
        with pytest.raises(reverie.DeadlineExceededError):
            writer.flush(remain, timeout=0.01)
    for remain in (4, 3, 2):
        client.sample_batch("q", 1, timeout=200)
        writer.flush(remain, timeout=200)
        assert writer.num_in_flight == remain
    with pytest.raises(ValueError, match="block_until_num_items"):
        writer.flush(-1)


def test_an_error_of_an_item_that_comes_up_while_the_order_is_shortened_reports_that_the_step_was_written(monkeypatch):
    monkeypatch.setattr(vector, "MANY", 0)
    writer, _ = of_many([None])
    writer._most = 0

    def failing(one):
        raise reverie.UnavailableError("gone")

    monkeypatch.setattr(OfOne, "num_in_flight", property(failing), raising=False)
    with pytest.raises(reverie.UnavailableError) as raised:
        writer.append({"x": np.zeros(1)}, ended=np.ones(1, bool))
    assert raised.value.step_written


def test_steps_that_are_in_no_item_are_counted_over_all_environments(client, caplog):
    writer = client.sequence_writer("t", 3, 3, num_envs=2, tail="drop", autoreset="disabled")
    for number in range(4):
        writer.append({"x": np.zeros((2, 2))}, ended=np.array([number % 2 == 1, number == 3]))
    assert (writer.num_dropped, writer.num_sent) == (5, 1)


def test_the_order_of_items_is_kept_for_those_in_flight_only(client, monkeypatch):
    monkeypatch.setattr(vector, "MANY", 4)
    writer = client.episode_writer("t", num_envs=2, autoreset="disabled")
    for _ in range(20):
        writer.append({"x": np.zeros((2, 2))}, ended=np.ones(2, bool))
        writer.flush(timeout=200)
    assert len(writer._order) <= 6


def test_invalid_steps_are_refused_before_a_row_is_written(client):
    writer = client.episode_writer("t", num_envs=2, max_length=2, autoreset="disabled")
    for data, options, error, text in (
        ({"x": np.zeros(3)}, {}, reverie.SignatureError, r"column 'x': got \[3\], want \[2, ...\]"),
        ({"x": 1.0}, {}, reverie.SignatureError, r"column 'x': got \[\]"),
        ({"x": None}, {}, reverie.SignatureError, "column 'x': got None"),
        ({"x": np.zeros(2)}, {"ended": [0, 1]}, ValueError, r"ended must be bool \[2\], got int64"),
        ({"x": np.zeros(2)}, {"where": [True]}, ValueError, r"where must be bool \[2\], got bool \[1\]"),
        (
            {"x": np.zeros(2)},
            {"ended": [False, True], "where": [True, False]},
            ValueError,
            "environment 1 has no step to end with",
        ),
    ):
        with pytest.raises(error, match=text):
            writer.append(data, **options)
    for _ in range(2):
        writer.append({"x": np.zeros(2)}, where=np.array([False, True]))
    with pytest.raises(ValueError, match="has 2 steps"):
        writer.append({"x": np.zeros(2)})
    assert writer.episode_steps.tolist() == [0, 2]
    with pytest.raises(ValueError, match="num_envs"):
        client.sequence_writer("t", 2, 1, num_envs=0)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(writer)


def test_a_full_table_holds_back_the_flush_for_no_longer_than_the_timeout_of_all(client):
    writer = client.episode_writer("q", num_envs=3, autoreset="disabled")
    writer.append({"x": np.zeros(3)}, ended=np.ones(3, bool))
    with pytest.raises(reverie.DeadlineExceededError):
        writer.flush(timeout=0.05)
    client.sample_batch("q", 3, timeout=200)
    writer.flush(timeout=200)
    writer.append({"x": np.zeros(3)})
    with pytest.raises(reverie.DeadlineExceededError):
        writer.end_episodes(timeout=0.05)
    assert writer.num_in_flight == 2
    client.sample_batch("q", 3, timeout=200)
    writer.flush(timeout=200)
    assert writer.num_in_flight == 0
    writer.close()
    with pytest.raises(reverie.ClosedError):
        writer.append({"x": np.zeros(3)})


class OfOne:
    """The writer of one environment: records its calls, each of which takes two seconds."""

    now = 0.0
    _timeout = None

    def __init__(self, error=None):
        self.error, self.calls, self._num_sent = error, [], 0
        self._writer = self

    def _check_room(self):
        pass

    def _write(self, data):
        self.calls.append(data["x"].item())

    def _make_room(self):
        self.calls.append("room")
        if self.error is not None:
            raise self.error

    def _end(self):
        self.calls.append("end")
        self._num_sent += 1

    def flush(self, block_until_num_items=0, *, timeout):
        self.calls.append(timeout)
        OfOne.now += 2.0

    def close(self):
        self.calls.append("closed")


def of_many(errors, timeout=None):
    given = iter(errors)
    writer = VectorWriter(lambda: OfOne(next(given)), len(errors), timeout, "disabled")
    return writer, [each.calls for each in writer.writers]


@pytest.fixture
def clock(monkeypatch):
    """The time that passes only in `OfOne.flush`."""
    monkeypatch.setattr(vector.time, "monotonic", lambda: OfOne.now)


@pytest.mark.usefixtures("clock")
def test_all_environments_have_one_deadline_together():
    writer, calls = of_many([None] * 4, timeout=7.0)
    writer.flush(timeout=5.0)
    writer.flush()
    assert calls == [[5.0, 7.0], [3.0, 5.0], [1.0, 3.0], [0.0, 1.0]]
    writer, calls = of_many([None] * 2)
    writer.flush()
    assert calls == [[None], [None]]


def test_a_timeout_in_one_environment_is_raised_after_the_step_is_written_in_all():
    late = [reverie.DeadlineExceededError(str(env)) for env in range(3)]
    writer, calls = of_many([None, late[1], late[2]])
    with pytest.raises(reverie.DeadlineExceededError, match=r"^1") as raised:
        writer.append({"x": np.arange(3)}, ended=np.array([False, True, True]))
    assert calls == [[0, "room"], [1, "end", "room"], [2, "end"]]
    assert raised.value.step_written


def test_the_first_of_several_errors_is_raised_with_the_others_as_notes_unless_one_is_ctrl_c():
    errors = [reverie.UnavailableError("gone"), None, reverie.ClosedError("the table"), KeyboardInterrupt()]
    writer, calls = of_many(errors[:3])
    with pytest.raises(reverie.UnavailableError) as raised:
        writer.append({"x": np.arange(3)})
    assert "environment 2 has an error, too: ClosedError: the table" in raised.value.__notes__
    writer, calls = of_many(errors[2:])
    with pytest.raises(KeyboardInterrupt) as interrupted:
        writer.append({"x": np.arange(2)})
    assert "environment 0 has an error, too: ClosedError: the table" in interrupted.value.__notes__
    assert interrupted.value.step_written
    assert calls == [[0, "room"], [1, "room"]]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (None, [9.0, "closed"]),
        (RuntimeError("the environment broke"), [9.0, "closed"]),
        (reverie.ClosedError("the table"), ["closed"]),
    ],
)
def test_leaving_the_block_waits_for_the_items_unless_the_replay_itself_failed(error, calls):
    writer, [received] = of_many([None], timeout=9.0)
    raised = contextlib.nullcontext() if error is None else pytest.raises(type(error))
    with raised, writer:
        if error is not None:
            raise error
    assert received == calls


def test_a_block_whose_last_wait_fails_is_still_closed():
    writer, [received] = of_many([None])
    writer.writers[0].flush = lambda number, *, timeout: 1 / 0
    with pytest.raises(ZeroDivisionError), writer:
        pass
    assert received == ["closed"]
