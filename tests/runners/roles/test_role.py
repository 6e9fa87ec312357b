"""Behaviour that all roles of a distributed run share."""

import contextlib
import dataclasses
import errno
import socket
import threading
import urllib.request

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import Server, Table, rate_limiters, selectors, testing  # noqa: E402
from reverie.agents.core import Weights  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.errors import (  # noqa: E402
    DamagedError,
    DeadlineExceededError,
    InternalError,
    ResourceExhaustedError,
    SignatureError,
    UnavailableError,
    UnknownKeyError,
    UnknownTableError,
)
from reverie.pages import Page  # noqa: E402
from reverie.runners.links.messages import (  # noqa: E402
    Evaluate,
    RoleFailed,
    RoleName,
    RoleReady,
    RoleSetup,
    ShardEndpoint,
    ShardSettings,
    Stop,
)
from reverie.runners.roles import heap_trim, learners, role, role_loop  # noqa: E402


class Idle(role.Role):
    def turn(self, link):
        raise NotImplementedError

    def report(self):
        return None

    def close(self):
        pass


def setup_of(kind):
    preset = dqn.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, threads=2)
    return RoleSetup(RoleName(kind), dqn, describe("CartPole-v1"), preset.config, run, num_shards=1, seed=0)


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("kind", "threads"), [("actor", 1), ("evaluator", 1), ("shard", 1), ("learner", 2)])
def test_only_the_learner_has_more_than_one_torch_thread(kind, threads, torch_threads):
    Idle(setup_of(kind))
    assert torch.get_num_threads() == threads


def test_the_evaluator_plays_the_environment_of_the_run_with_its_wrappers_and_limit(torch_threads):
    setup = setup_of("evaluator")
    spec = describe("CartPole-v1", EnvSettings(wrappers=("gymnasium.wrappers:TimeAwareObservation",), time_limit=3))
    evaluator = role.EvaluatorRole(dataclasses.replace(setup, env=spec))
    flat = np.zeros(sum(one.numel() for one in dqn.make_policy(spec, setup.config).module.parameters()), np.float32)
    played = evaluator.handle(Evaluate(4, Weights(1, flat), confirm=False))
    evaluator.close()
    assert played.number == 4
    assert set(played.screening.returns) == {3.0}, "each episode is cut off after the third step"


@pytest.mark.parametrize(("chosen", "expected"), [(None, "cuda:1"), ("cpu", "cpu")])
def test_the_evaluators_policy_is_on_the_device_of_actors_and_not_on_the_learners(
    monkeypatch, torch_threads, chosen, expected
):
    """No GPU is needed: the device is recorded instead of used."""
    devices = []
    monkeypatch.setattr(role, "networks_on", lambda device: devices.append(device) or contextlib.nullcontext())
    setup = setup_of("evaluator")
    run = dataclasses.replace(setup.run, device="cuda:1", actor_device=chosen)
    role.EvaluatorRole(dataclasses.replace(setup, run=run)).close()
    assert devices == [expected]


class Line:
    """A link that records reports."""

    def __init__(self):
        self.reported = []

    def send(self, report):
        self.reported.append(report)

    def commands(self):
        return [Stop()]


@pytest.mark.parametrize(
    ("kind", "error", "transient"),
    [
        ("actor", UnavailableError("the shard is gone"), True),
        ("actor", ValueError("a defect"), False),
        ("evaluator", ValueError("a game that broke"), True),
        ("actor", UnknownTableError("another server has the port of the shard"), True),
        ("learner", UnknownKeyError("the shard began without its items"), True),
        ("learner", SignatureError("a batch of another layout"), False),
        ("learner", ResourceExhaustedError("the server's memory is used up by others"), True),
        ("learner", OSError(errno.ENOSPC, "No space left on device"), True),
        ("actor", OSError(errno.EACCES, "Permission denied"), False),
        ("actor", InternalError("a defect"), False),
        ("shard", DamagedError("a checkpoint that is not what was written"), False),
    ],
)
def test_only_roles_with_transient_failures_are_restarted(monkeypatch, torch_threads, kind, error, transient):
    class Broken(Idle):
        def __init__(self, setup):
            raise error

    monkeypatch.setattr(role_loop, "BEGIN_SECONDS", 0.0)
    monkeypatch.setitem(role_loop.ROLES, kind, Broken)
    line = Line()
    role_loop.run_role(setup_of(kind), line)
    (failed,) = line.reported
    assert isinstance(failed, RoleFailed)
    assert (failed.error, failed.text, failed.transient) == (type(error).__name__, str(error), transient)


@pytest.mark.parametrize("kind", role_loop.ROLES)
def test_every_role_returns_freed_memory_while_it_runs(monkeypatch, torch_threads, kind):
    class TwoTurns(Line):
        def commands(self):
            return iter([Stop()] if self.turns == 2 else [])

    class Turning(Idle):
        def turn(self, link):
            link.turns += 1

    given = []
    monkeypatch.setitem(role_loop.ROLES, kind, Turning)
    monkeypatch.setattr(heap_trim, "SECONDS", 0.0)
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: given.append(1))
    line = TwoTurns()
    line.turns = 0
    role_loop.run_role(setup_of(kind), line)
    assert len(given) == 2


@pytest.mark.parametrize("error", [UnavailableError("out of reach"), DeadlineExceededError("no answer within 5 s")])
def test_a_role_retries_its_start_while_its_shard_does_not_respond(monkeypatch, torch_threads, error):
    attempts = []

    class Patient(Idle):
        def __init__(self, setup):
            super().__init__(setup)
            attempts.append(setup)
            if len(attempts) < 9:
                raise error

    monkeypatch.setattr(role_loop, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(role_loop, "BEGIN_SECONDS", 1000.0)
    monkeypatch.setitem(role_loop.ROLES, "actor", Patient)
    line = Line()
    role_loop.run_role(setup_of("actor"), line)
    assert len(attempts) == 9
    assert [type(report) for report in line.reported] == [RoleReady]


def test_a_draw_from_a_shard_that_stalls_briefly_is_not_lost():
    """A shard stalls on a busy machine: a draw that is not waited for would count for the limiter and be lost."""
    table = Table(
        "replay",
        max_size=9,
        sampler=selectors.Uniform(),
        remover=selectors.Fifo(),
        rate_limiter=rate_limiters.MinSize(1),
    )
    host, got = testing.ServerProcess(), []
    try:
        with host.serve([table]) as address:
            setup = dataclasses.replace(setup_of("learner"), endpoints=(ShardEndpoint(address),))
            with learners.learning_client(setup) as client:
                client.insert({"n": 7}, {"replay": 1.0}, timeout=100.0)
                with host.suspended():
                    draw = threading.Thread(target=lambda: got.append(client.sample_batch("replay", 1, timeout=0)))
                    draw.start()
                    draw.join(0.5)  # longer than a client waits by default
                draw.join()
                assert [batch.data["n"].tolist() for batch in got] == [[7]]
                assert client.info(timeout=100.0).tables["replay"].num_samples == 1
    finally:
        host.close()


def test_the_page_of_a_restarted_role_takes_a_free_port_if_its_old_one_is_taken(torch_threads):
    def opened(http, generation):
        serving = ShardSettings(page=None if http is None else Page(http))
        with Server([Table.queue("t", 1)], listen=False, token="of the run") as server:
            url = role.open_page(server, dataclasses.replace(setup_of("shard"), serving=serving, generation=generation))
            if url:
                with urllib.request.urlopen(f"{url}api/run", timeout=100) as response:
                    assert response.read() == b"null", "the page asks for no token"
            return url

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=address):
            opened(address, 0)
        assert opened(address, 1).startswith("http://127.0.0.1:")
    assert opened(address, 1) == f"http://{address}/"
    assert opened(None, 0) == ""
    with pytest.raises(ValueError, match="give the page a token"):
        opened("0.0.0.0:0", 0)


@pytest.mark.parametrize(
    ("kind", "limit", "transient"), [("evaluator", None, True), ("evaluator", 0, False), ("actor", 3, False)]
)
def test_an_evaluator_is_not_restarted_where_environments_may_not_be(kind, limit, transient):
    from types import SimpleNamespace

    from reverie.agents.core import EnvironmentCrash, EnvironmentCrashedError

    crash, sent = EnvironmentCrashedError(EnvironmentCrash("Mine-v0", 1, 2, "OSError: gone"), 1), []

    class Broken:
        def __init__(self, setup):
            raise crash

    env = SimpleNamespace(settings=EnvSettings(max_env_restarts=limit))
    setup = SimpleNamespace(name=SimpleNamespace(kind=kind), env=env)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(role_loop.ROLES, kind, Broken)
        role_loop.run_role(setup, SimpleNamespace(send=sent.append))
    (failed,) = sent
    assert (failed.error, failed.transient) == ("EnvironmentCrashedError", transient)
