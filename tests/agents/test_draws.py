"""A learner's draws: each is used once, by the learner that drew it or by one that restores its state."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents import draws as draws_module  # noqa: E402
from reverie.agents.draws import TableDraws, joined  # noqa: E402
from reverie.errors import DeadlineExceededError, UnavailableError  # noqa: E402

CPU = torch.device("cpu")
BATCH = 32


@pytest.fixture(params=["in-process", "shared-memory", "grpc"])
def replay(request):
    """A function that fills a table and gives a client of it, on each of the ways to it."""
    servers = []

    def make(*, items=200, max_size=1_000, limiter=None):
        limiter = reverie.rate_limiters.MinSize(1) if limiter is None else limiter
        table = reverie.Table(
            "replay",
            sampler=reverie.selectors.Prioritized(0.6, seed=3),
            remover=reverie.selectors.Fifo(),
            max_size=max_size,
            rate_limiter=limiter,
        )
        server = reverie.Server([table])
        servers.append(server)
        inside = request.param == "in-process"
        client = server.client() if inside else reverie.Client(server.address, transport=request.param)
        insert(client, 0, items)
        return client

    yield make
    for server in servers:
        server.stop()


def insert(client, first, count):
    values = np.arange(first, first + count, dtype=np.float32)
    client.insert_batch("replay", {"x": values, "y": -values}, priorities=1.0 + values)


def samples(client):
    return client.info().tables["replay"].num_samples


def rows(batch):
    """Key, chance and data of each draw, which must belong together."""
    assert (batch.data["x"] == -batch.data["y"]).all()
    return list(zip(batch.info.key.tolist(), batch.info.probability.tolist(), batch.data["x"].tolist(), strict=True))


def described(state):
    """Keys and chances of the draws that a state names."""
    infos = [one["info"] for one in state["ahead"]]
    both = [zip(info["key"].tolist(), info["probability"].tolist(), strict=True) for info in infos]
    return [draw for one in both for draw in one]


def ahead(number):
    draws = TableDraws("replay", BATCH)
    draws.ahead = number
    return draws


def test_without_prefetch_a_batch_is_drawn_on_request(replay):
    client, draws = replay(), ahead(0)
    for count in range(1, 4):
        batch = draws.next(client, CPU)
        assert isinstance(batch.data["x"], torch.Tensor)
        assert samples(client) == count * BATCH
    assert draws.state_dict() == {"given": 3 * BATCH, "lost": 0, "ahead": [], "table": "replay", "made": 3 * BATCH}


def test_batches_are_prefetched_and_each_draw_is_returned_once(replay, until):
    client, draws = replay(), ahead(2)
    until(lambda: draws.fetch(client, CPU))
    until(lambda: samples(client) >= 3 * BATCH)  # the one in hand, and two that wait
    seen = [rows(draws.next(client, CPU))]
    for _ in range(4):
        until(lambda: draws.fetch(client, CPU))
        seen.append(rows(draws.next(client, CPU)))
    assert [len(one) for one in seen] == [BATCH] * 5
    state = draws.state_dict()
    assert samples(client) == 5 * BATCH + len(described(state))
    assert len({tuple(one) for one in seen}) == 5
    by_key = {key: x for one in seen for key, _, x in one}
    assert client.get("replay", list(by_key)).data["x"].tolist() == list(by_key.values())


def test_draws_from_before_a_stop_are_returned_first_and_no_others_are_drawn(replay, until):
    client, draws = replay(), ahead(3)
    until(lambda: draws.fetch(client, CPU))
    until(lambda: samples(client) >= 3 * BATCH)
    state = described(draws.state_dict())
    drawn = samples(client)
    assert len(state) == drawn
    given = []
    while len(given) < drawn:
        assert samples(client) == drawn
        given += [row[:2] for row in rows(draws.next(client, CPU))]
    assert sorted(given) == sorted(state)


def test_a_restored_state_reads_the_same_draws_again_and_counts_them_once(replay, until):
    client, first = replay(), ahead(2)
    until(lambda: first.fetch(client, CPU))
    until(lambda: samples(client) >= 2 * BATCH)
    state = first.state_dict()
    own = [first.next(client, CPU) for _ in state["ahead"]]
    counted = samples(client)
    assert (state["table"], state["made"]) == ("replay", counted)
    for number in (0, 2):  # whether the other draws ahead or not
        other = ahead(number)
        other.load_state_dict(state)
        assert described(other.state_dict()) == described(state)
        assert other.state_dict()["made"] == state["made"]
        again = [other.next(client, CPU) for _ in state["ahead"]]
        assert samples(client) == counted
        assert [rows(one) for one in again] == [rows(one) for one in own]
        for one, same in zip(again, own, strict=True):
            for normalise in ("batch", "table"):
                assert (one.weights(0.4, normalise) == same.weights(0.4, normalise)).all()
        assert other.lost == 0
        until(lambda other=other: other.fetch(client, CPU))
        assert samples(client) > counted
        other.stop()
        counted = samples(client)


def test_draws_of_deleted_items_are_counted_and_the_others_join_the_next_batch(replay, until):
    client, first = replay(items=200, max_size=200), ahead(1)
    until(lambda: first.fetch(client, CPU))
    state = first.state_dict()
    insert(client, 200, 100)  # the first hundred leave
    here = [x >= 100 for batch in [first.next(client, CPU) for _ in state["ahead"]] for x in batch.data["x"].tolist()]
    gone, left = here.count(False), here.count(True)
    assert gone > 0 < left
    other = ahead(0)
    other.load_state_dict(state)
    given, before = [], samples(client)
    while samples(client) == before:
        given.append(len(other.next(client, CPU)))
    assert other.lost == gone
    assert other.state_dict()["made"] == samples(client)
    assert sum(given) == other.given == left + BATCH
    assert min(given) >= BATCH


def test_draws_of_an_incomplete_batch_join_the_next(replay, until):
    # Half a batch more than one may be drawn: the second waits for inserts when it is abandoned.
    limiter = reverie.rate_limiters.RateLimiter(1.0, 1, BATCH * 1.5, float("inf"))
    client, draws = replay(items=3 * BATCH, limiter=limiter), ahead(2)
    until(lambda: draws.fetch(client, CPU))
    until(lambda: samples(client) == 3 * BATCH // 2)
    assert len(draws.next(client, CPU)) == BATCH
    draws.stop()
    assert samples(client) == 3 * BATCH // 2
    assert len(described(draws.state_dict())) == BATCH // 2
    insert(client, 3 * BATCH, 4 * BATCH)
    until(lambda: draws.fetch(client, CPU))
    batch = draws.next(client, CPU)
    assert len(batch) == BATCH + BATCH // 2
    assert batch.data["x"].shape == (len(batch),)
    assert batch.weights(0.4, "table").shape == (len(batch),)
    rows(batch)
    draws.stop()


def test_loading_a_state_discards_earlier_draws(replay, until):
    limiter = reverie.rate_limiters.RateLimiter(1.0, 1, BATCH * 1.5, float("inf"))
    client, draws = replay(items=4 * BATCH, limiter=limiter), ahead(2)
    state = draws.state_dict()
    until(lambda: draws.fetch(client, CPU))
    until(lambda: samples(client) == 5 * BATCH // 2)  # one in hand, one that waits, and one that is never whole
    draws.load_state_dict(state)
    assert draws.state_dict() == state == {"given": 0, "lost": 0, "ahead": [], "table": "replay", "made": 0}


def test_an_impossible_draw_is_reported_at_once(replay):
    client = replay(items=1, limiter=reverie.rate_limiters.MinSize(50))
    for number in (0, 2):
        draws = ahead(number)
        with pytest.raises(DeadlineExceededError):
            draws.next(client, CPU)
        if number:
            assert not draws.fetch(client, CPU)
        draws.stop()


def test_joined_batches_have_the_smaller_of_both_smallest_probabilities(replay):
    client = replay()
    one, two = (TableDraws("replay", BATCH).next(client, CPU) for _ in range(2))
    one.smallest_probability = two.smallest_probability / 2
    both = joined([one, two])
    assert both.smallest_probability == one.smallest_probability
    assert rows(both) == rows(one) + rows(two)
    two.smallest_probability = None  # of a table without one
    assert joined([two, two]).smallest_probability is None


def test_after_an_error_it_draws_again_and_keeps_earlier_draws():
    made = []

    class Broken:
        """Batches that end in an error."""

        def __init__(self, left):
            self.left, self.leftover = left, []

        def __next__(self):
            raise UnavailableError("the shard is gone")

        def close(self):
            self.leftover = self.left

    class Whole(SimpleNamespace):
        def __len__(self):
            return BATCH

    keys = np.arange(BATCH)
    left = Whole(data={"x": keys.astype(np.float32)}, info=SimpleNamespace(key=keys))

    def batches(table, batch_size, **options):
        assert options == {"prefetch": 2, "timeout": 0, "as_": "torch", "device": CPU}
        made.append(Broken([left] if not made else []))
        return made[-1]

    client, draws = SimpleNamespace(batches=batches), ahead(2)
    with pytest.raises(UnavailableError):
        draws.next(client, CPU)
    assert draws.next(client, CPU).info is left.info
    with pytest.raises(UnavailableError):
        draws.next(client, CPU)
    assert len(made) == 2


class Cuda:
    """A machine with a GPU, which records its work on streams as a list of steps."""

    def __init__(self, monkeypatch):
        self.steps, self.now = [], "computing"
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: "copying")
        monkeypatch.setattr(torch.cuda, "stream", self.on)
        current = SimpleNamespace(wait_stream=lambda stream: self.steps.append(("computing waits for", stream)))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
        self.current = current

    @contextlib.contextmanager
    def on(self, stream):
        self.now = stream
        yield
        self.now = "computing"

    def batches(self, *args, **options):
        assert options["device"].type == "cuda"
        cuda = self

        class Column:
            def record_stream(self, stream):
                assert stream is cuda.current
                cuda.steps.append("kept for computing")

        class Made:
            def __next__(self):
                cuda.steps.append(("copied while", cuda.now))
                return SimpleNamespace(data={"x": Column()}, info=SimpleNamespace(key=range(BATCH)))

        return Made()


def test_copies_to_a_gpu_overlap_with_its_work_and_are_waited_for_before_use(monkeypatch):
    cuda, draws, gpu = Cuda(monkeypatch), ahead(2), torch.device("cuda")
    client = SimpleNamespace(batches=cuda.batches)
    assert draws.fetch(client, gpu)
    assert draws.fetch(client, gpu)  # one at a time is on its way
    assert cuda.steps == [("copied while", "copying")]
    draws.next(client, gpu)
    assert cuda.steps[1:] == [("computing waits for", "copying"), "kept for computing"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_batches_hold_what_the_table_holds(until):
    server = reverie.Server(
        [
            reverie.Table(
                "replay",
                sampler=reverie.selectors.Prioritized(0.6, seed=3),
                remover=reverie.selectors.Fifo(),
                max_size=1_000,
                rate_limiter=reverie.rate_limiters.MinSize(1),
            )
        ],
        listen=False,
    )
    client, draws, gpu = server.client(), ahead(2), torch.device("cuda")
    insert(client, 0, 200)
    for _ in range(50):
        until(lambda: draws.fetch(client, gpu))
        batch = draws.next(client, gpu)
        assert batch.data["x"].device.type == "cuda"
        there = client.get("replay", batch.info.key).data["x"]
        assert batch.data["x"].cpu().tolist() == there.tolist()
    draws.stop()
    server.stop()


def test_seconds_to_read_again_are_the_clients_deadline():
    asked = []
    client = SimpleNamespace(get=lambda *args, **options: asked.append(options) or (_ for _ in ()).throw(KeyError))
    draws = ahead(0)
    ahead_of = [{"info": {"key": np.array([1])}, "smallest_probability": None}]
    draws.load_state_dict({"given": 0, "lost": 0, "ahead": ahead_of})
    with pytest.raises(KeyError):
        draws.next(client, CPU)
    assert asked == [{"timeout": draws_module.SECONDS_TO_READ_AGAIN}]
    assert draws.state_dict()["ahead"][0] is ahead_of[0], "what could not be read is still owed"


def test_draws_that_a_deadline_cuts_off_are_learnt_from_with_the_next_batch(replay):
    client, draws = (
        replay(items=20, limiter=reverie.rate_limiters.SampleToInsertRatio(1.0, 1, error_buffer=20.0)),
        ahead(0),
    )
    with contextlib.suppress(DeadlineExceededError):
        while True:
            draws.next(client, CPU)
    cut_off = samples(client) - draws.given
    assert 0 < cut_off < BATCH
    assert draws.state_dict()["made"] == samples(client), "they are owed"
    insert(client, 20, 40)
    assert len(draws.next(client, CPU).info.key) == BATCH + cut_off
    assert draws.given == samples(client)


def test_a_learner_that_only_gets_parts_of_batches_learns_from_them_once_they_are_one(replay):
    client, draws = replay(), ahead(0)
    parts = [client.sample_batch("replay", 20) for _ in range(3)]

    def cut_off(*_, **__):
        raise DeadlineExceededError("the timeout passed", partial=parts.pop(0))

    broken, drawn = SimpleNamespace(sample_batch=cut_off), [row for part in parts for row in rows(part)]
    with pytest.raises(DeadlineExceededError):
        draws.next(broken, CPU)
    assert rows(draws.next(broken, CPU)) == drawn[:40]
    with pytest.raises(DeadlineExceededError):
        draws.next(broken, CPU)
    assert draws.given == 40
