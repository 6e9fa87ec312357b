"""Learners and parameter shards in separate processes: questions, answers, refusals, losses and delays."""

import dataclasses
import socket
import threading

import numpy as np
import pytest

pytest.importorskip("torch")

from reverie.agents.environments import describe
from reverie.agents.gorila import agent as gorila
from reverie.agents.gorila.learner import make_parameter_server, make_parameter_shard
from reverie.agents.gorila.parameters import ParameterServer, PullParameters
from reverie.errors import DeadlineExceededError, UnavailableError
from reverie.runners import process
from reverie.runners.links import parameter_connections as lines_module
from reverie.runners.links.message_sockets import RoleSocket
from reverie.runners.links.parameter_connections import SocketAddresses, SocketServer
from reverie.types import Batch, BatchInfo

SPEC = describe("CartPole-v1")
CONFIG = dataclasses.replace(
    gorila.load_preset("CartPole-v1").config,
    hidden=(16, 16),
    num_parameter_shards=3,
    max_staleness=1,
    max_grad_norm=0.5,
)


@pytest.fixture(autouse=True)
def answers_may_take_their_time(monkeypatch):
    monkeypatch.setattr(lines_module, "ANSWER_SECONDS", 200.0)


@pytest.fixture
def doors(tmp_path):
    """A function that puts something behind a door each; the lines to all of them."""
    opened = []

    def make(*answers):
        paths = tuple(tmp_path / str(len(opened) + i) for i in range(len(answers)))
        opened.extend(SocketServer(path, answer) for path, answer in zip(paths, answers, strict=True))
        return SocketAddresses(paths).open()

    yield make
    for door in opened:
        door.close()


def shards():
    return [make_parameter_shard(SPEC, CONFIG, seed=3, index=i) for i in range(CONFIG.num_parameter_shards)]


def pushed(server, versions, seed, *, scale=1.0):
    size = len(server.pull().flat)
    gradient = np.random.default_rng(seed).normal(size=size).astype(np.float32) * np.float32(scale)
    return server.push(gradient, float(np.linalg.norm(gradient)), versions)


def test_a_server_with_remote_shards_equals_one_in_process_bit_for_bit(doors):
    here = make_parameter_server(SPEC, CONFIG, seed=3)
    apart = ParameterServer(doors(*(shard.answer for shard in shards())), CONFIG.num_parameter_shards)
    assert (apart.pull().flat == here.pull().flat).all()
    taken = []
    for turn in range(12):
        # Every third is of parameters that are two versions old, and dropped.
        versions = [max(0, one - 2 * (turn % 3 == 2)) for one in here.pull().versions]
        taken.append([pushed(server, versions, turn) for server in (here, apart)])
        assert apart.pull().versions == here.pull().versions
        assert (apart.pull().flat == here.pull().flat).all()
    assert taken == [[turn % 3 != 2] * 2 for turn in range(12)]


def test_a_twin_whose_gradients_arrive_scaled_is_not(doors):
    """The comparison above detects a gradient that is larger by a thousandth."""
    here = make_parameter_server(SPEC, CONFIG, seed=3)
    apart = ParameterServer(doors(*(shard.answer for shard in shards())), CONFIG.num_parameter_shards)
    for turn in range(3):
        for server, scale in ((here, 1e-3), (apart, 1.001e-3)):
            assert pushed(server, server.pull().versions, turn, scale=scale)
    assert (apart.pull().flat != here.pull().flat).any()


def test_a_range_is_sent_only_where_its_version_is_another(doors):
    answered = []

    def recording(shard):
        return lambda question: answered.append(shard.answer(question)) or answered[-1]

    made = shards()
    server = ParameterServer(doors(*map(recording, made)), len(made))
    first = server.pull()
    assert [one.version for one in answered] == [0, 0, 0]
    answered.clear()
    again = server.pull()
    assert answered == [None, None, None]
    assert (again.flat == first.flat).all()
    answered.clear()
    assert made[1].push(np.ones_like(made[1].pull().flat), 1.0, 0)
    assert server.pull().versions == (0, 1, 0)
    assert sorted(one is None for one in answered) == [False, True, True]


def test_several_learners_ask_at_once_and_each_gets_its_own_answers(doors, tmp_path):
    doors(lambda question: question * 2)
    lines = [SocketAddresses((tmp_path / "0",)).open() for _ in range(4)]
    questions = [range(1_000 * index, 1_000 * index + 200) for index in range(4)]
    answers = [[] for _ in lines]

    def ask(index):
        answers[index].extend(lines[index].ask([question])[0] for question in questions[index])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[2 * question for question in mine] for mine in questions]


def test_a_shards_refusal_is_reported_with_its_number_and_the_connection_stays_open(doors):
    made = shards()
    lines = doors(*(shard.answer for shard in made))
    server = ParameterServer(lines, len(made))
    server.pull()
    with pytest.raises(RuntimeError, match=r"parameter shard 0 refused: ValueError: norm is nan, and must be finite"):
        server.push(np.zeros(len(server.pull().flat), np.float32), float("nan"), (0, 0, 0))
    with pytest.raises(RuntimeError, match=r"parameter shard 1 refused: TypeError: .* received a str"):
        lines.ask([PullParameters(-1), "what?", PullParameters(-1)])
    assert server.pull().versions == (0, 0, 0)


def test_a_missing_shard_is_named_and_found_once_it_starts(tmp_path):
    lines = SocketAddresses((tmp_path / "a", tmp_path / "b")).open()
    first = SocketServer(tmp_path / "a", str)
    with pytest.raises(UnavailableError, match="parameter shard 1 cannot be reached: FileNotFoundError"):
        lines.ask([1, 2])
    second = SocketServer(tmp_path / "b", str)
    assert lines.ask([1, 2]) == ["1", "2"]
    first.close()
    with pytest.raises(UnavailableError, match="parameter shard 0 cannot be reached"):
        lines.ask([1, 2])
    second.close()


def test_a_learner_that_connects_while_a_server_is_closed_is_not_served(tmp_path, monkeypatch):
    connected, closed = threading.Event(), threading.Event()

    def slow(*_):
        connected.set()
        closed.wait(200)

    monkeypatch.setattr(lines_module, "_set_timeout", slow)
    server = SocketServer(tmp_path / "a", str)
    with socket.socket(socket.AF_UNIX) as learner:
        learner.settimeout(20)
        learner.connect(str(tmp_path / "a"))
        assert connected.wait(200)
        server.close()
        closed.set()
        assert learner.recv(1) == b"", "the end of the connection"
    server.close()


def test_a_link_closes_what_it_serves(tmp_path):
    line, other = socket.socketpair()
    link = process.SocketLink(RoleSocket(line), lambda: None, tmp_path / "a")
    link.serve(str)
    learner = SocketAddresses((tmp_path / "a",)).open()
    assert learner.ask([1]) == ["1"]
    link.close()
    with pytest.raises(UnavailableError, match="parameter shard 0 cannot be reached"):
        learner.ask([2])
    other.close()


def test_a_late_answer_times_out_and_is_never_taken_for_the_next_answer(doors, monkeypatch):
    monkeypatch.setattr(lines_module, "ANSWER_SECONDS", 0.25)
    go_on = threading.Event()

    def answer(question):
        if question == "slow":
            go_on.wait(200)
        return f"answer to {question}"

    # The slow one is asked first: another may be late too, on a busy machine.
    lines = doors(answer, str)
    with pytest.raises(DeadlineExceededError, match=r"parameter shard 0 did not respond within 0\.25 s"):
        lines.ask(["slow", "one"])
    go_on.set()
    monkeypatch.setattr(lines_module, "ANSWER_SECONDS", 100.0)
    assert lines.ask(["quick", "two"]) == ["answer to quick", "two"]


def test_sending_a_gradient_to_a_shard_that_does_not_read_times_out(tmp_path, monkeypatch):
    """The shard is like a stopped process: its socket accepts the bytes that fit into it, and no more."""
    import socket

    monkeypatch.setattr(lines_module, "ANSWER_SECONDS", 0.25)
    deaf = socket.socket(socket.AF_UNIX)
    deaf.bind(str(tmp_path / "deaf"))
    deaf.listen(1)
    lines = SocketAddresses((tmp_path / "deaf",)).open()
    with pytest.raises(DeadlineExceededError, match="parameter shard 0 did not respond"):
        lines.ask([np.zeros(4_000_000, np.float32)])
    deaf.close()


def test_a_learner_pulls_first_from_a_server_that_went_back_in_version(networks_of):
    """Restarted parameter shards are at an older version: the learner's parameters are no longer valid."""
    from reverie.agents.core import Stopwatch

    config = dataclasses.replace(CONFIG, target_period=2)
    server, older = (make_parameter_server(SPEC, config, seed=3) for _ in range(2))
    learner = gorila.make_learner(SPEC, config, FakeReplay(), seed=9, watch=Stopwatch(), server=server, index=0)
    for _ in range(5):
        learner.learn()
    assert learner.version == 5
    learner.follow(older)
    learner.learn()
    assert (learner.version, older.pull().versions) == (1, (1, 1, 1))
    assert learner.metrics()["gradients_dropped"] == 0
    networks = networks_of(learner)
    # The target is a copy of what it came back to, not of versions that were never made.
    assert (networks["target-0"] == make_parameter_server(SPEC, config, seed=3).pull().flat).all()
    assert (networks["online-0"] == older.pull().flat).all()


class FakeReplay:
    """Gives the same batch each time."""

    def sample_batch(self, table, batch_size, *, timeout):
        rng = np.random.default_rng(0)
        data = {
            "obs": rng.normal(size=(batch_size, 4)).astype(np.float32),
            "next_obs": rng.normal(size=(batch_size, 4)).astype(np.float32),
            "action": rng.integers(0, 2, batch_size),
            "reward": np.ones(batch_size, np.float32),
            "discount": np.full(batch_size, 0.9, np.float32),
            "weights_version": np.zeros(batch_size, np.int64),
        }
        return Batch(info=BatchInfo(*np.zeros((len(dataclasses.fields(BatchInfo)), batch_size))), data=data)
