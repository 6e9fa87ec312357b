"""A run on a Ray cluster of two nodes, both on this machine."""

import dataclasses
import json
import os
import shutil
import signal
import threading
import urllib.error
import urllib.request
from collections import deque

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("cryptography")

import ray

import reverie
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import RunSettings
from reverie.agents.environments import describe
from reverie.agents.gorila import agent as gorila
from reverie.agents.gorila.learner import make_parameter_server
from reverie.agents.gorila.parameters import ParameterServer, PullParameters
from reverie.runners import (
    DeviceError,
    NoRoomError,
    Page,
    PageOpened,
    Progress,
    RoleRestarted,
    Saved,
    StoppedError,
    checkpoints,
    plan,
    train,
)
from reverie.runners.checkpoints import actor_counts
from reverie.runners.links.messages import RoleName, RoleReady, RoleSetup, ShardReport
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.ray import cluster as on_ray
from reverie.runners.ray import stop_probe as probes
from reverie.runners.supervision import supervisor

# One cluster, in one worker.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]

CONFIG = dataclasses.replace(
    apex_dqn.load_preset("CartPole-v1").config, learning_starts=200, samples_per_insert=8.0, num_actors=2
)
RUN = RunSettings(
    target_return=10_000.0,  # more than there is: a slow machine must not solve it before the test is over
    max_env_steps=10**9,
    evaluate_every=500,
    checkpoint_every=300,
    screening_episodes=2,
    confirmation_episodes=3,
)


@pytest.fixture
def cluster(ray_head, until):
    """Both nodes, also after a test that removed the other one; nothing of a test before holds a CPU or GPU."""
    if len(ray_head.list_all_nodes()) < 2:
        ray_head.other = ray_head.add(num_cpus=4, num_gpus=1)  # as declared
    until(lambda: ray.cluster_resources().get("CPU") == 8 and free("CPU") == 8 and free("GPU") == 1)
    return ray_head


@pytest.fixture(autouse=True)
def all_may_take_their_time(monkeypatch):
    monkeypatch.setattr(on_ray, "ANSWER_SECONDS", 200.0)
    monkeypatch.setattr(supervisor, "END_SECONDS", 100.0)


def free(kind):
    """The free resources of a kind, which the cluster reports with a delay."""
    return ray.available_resources().get(kind, 0.0)


def test_a_shard_on_another_node_requires_tls_and_the_token(cluster):
    topology = plan(apex_dqn, "CartPole-v1", config=CONFIG, run=RUN, runner="ray", num_shards=2)
    backend = on_ray.Cluster(topology)
    try:
        name = RoleName("shard", 1)
        setup = RoleSetup(
            name=name,
            agent=apex_dqn,
            env=topology.env,
            config=CONFIG,
            run=RUN,
            num_shards=2,
            seed=0,
            serving=backend.serving(name, ReplayStorage(), None),
        )
        backend.start(setup)
        while not (reports := [report for _, report in backend.listen(1.0)]):
            pass
        (ready,) = reports
        assert isinstance(ready, RoleReady), ready
        endpoint = backend.endpoint(name, ready)
        assert endpoint.client(patience=100.0).info().tables["replay"].current_size == 0
        # The same host is found whatever the address; over the network it is TLS, and nothing but the run's own.
        options = {"transport": "grpc", "patience": 100.0}
        reached = reverie.Client(endpoint.address, token=endpoint.token, tls=endpoint.tls, **options)
        assert reached.info().transport == "grpc"
        with pytest.raises(reverie.UnauthenticatedError):
            reverie.Client(endpoint.address, tls=endpoint.tls, **options).info()
        options["patience"] = 1.0
        with pytest.raises((reverie.UnauthenticatedError, reverie.UnavailableError, reverie.ProtocolError)):
            reverie.Client(endpoint.address, token=endpoint.token, **options).info()
    finally:
        backend.close()


def test_parameter_shards_answer_over_ray_as_in_one_process_and_a_lost_one_is_named(cluster):
    config = dataclasses.replace(gorila.load_preset("CartPole-v1").config, hidden=(16, 16), num_parameter_shards=2)
    topology = plan(gorila, "CartPole-v1", config=config, run=RUN, runner="ray")
    backend = on_ray.Cluster(topology)
    try:
        setups = [
            RoleSetup(
                name=RoleName("parameter shard", index),
                agent=gorila,
                env=topology.env,
                config=config,
                run=RUN,
                num_shards=1,
                seed=3,
            )
            for index in range(2)
        ]
        for setup in setups:
            backend.start(setup)
        ready = set()
        while len(ready) < 2:
            ready |= {name for name, report in backend.listen(1.0) if isinstance(report, RoleReady)}
        here = make_parameter_server(topology.env, config, seed=3)
        lines = backend.parameter_addresses(setups).open()
        apart = ParameterServer(lines, 2)
        size = len(here.pull().flat)
        for turn in range(4):
            gradient = np.random.default_rng(turn).normal(size=size).astype(np.float32)
            for server in (here, apart):
                assert server.push(gradient, float(np.linalg.norm(gradient)), server.pull().versions)
            assert apart.pull().versions == (turn + 1, turn + 1)
            assert (apart.pull().flat == here.pull().flat).all()
        with pytest.raises(RuntimeError, match="parameter shard 1 refused: TypeError"):
            lines.ask([PullParameters(-1), "what?"])
        backend.kill(setups[1].name)
        pulls = iter(apart.pull, None)  # it may answer until it is gone
        with pytest.raises(reverie.UnavailableError, match=r"parameter shard 1 cannot be reached: .*Actor"):
            deque(pulls, maxlen=0)
    finally:
        backend.close()


def test_a_learner_on_cuda_is_placed_with_the_gpu_and_too_many_gpus_are_refused_at_once(
    cluster, until, tmp_path, monkeypatch
):
    go = tmp_path / "go"

    class Slow(on_ray.RoleActor):
        """A process that takes long to begin, as one that imports PyTorch."""

        def __init__(self):
            while not go.exists():
                threading.Event().wait(0.01)
            super().__init__()

    monkeypatch.setattr(on_ray, "RoleActor", Slow)
    run = dataclasses.replace(RUN, device="cuda")
    topology = plan(apex_dqn, "CartPole-v1", config=CONFIG, run=run, runner="ray")
    backend = on_ray.Cluster(topology)
    try:
        setups = {
            kind: RoleSetup(RoleName(kind), apex_dqn, topology.env, CONFIG, run, num_shards=1, seed=0)
            for kind in ("learner", "actor")
        }
        backend.start(setups["learner"])
        where = lambda host: (ray.get_runtime_context().get_node_id(), ray.get_gpu_ids())  # noqa: E731
        host = backend._running[setups["learner"].name].host
        # It has the GPU, and so its place: it lacks nothing, though none is free and it has not begun.
        lacked = set()
        until(lambda: lacked.add(backend.why_not_started(setups["learner"].name)) or on_ray._is_placed(host))
        until(lambda: free("GPU") == 0 and backend.why_not_started(setups["learner"].name) == "")
        assert lacked == {""}
        assert ray.wait([host.__ray_ready__.remote()], timeout=0)[0] == []
        go.touch()
        assert ray.get(host.__ray_call__.remote(where)) == (cluster.other.node_id, [0])
        # The newest weights are known outside the supervisor, and are lost with no other node.
        assert ray.get(backend._parameters._actor.__ray_call__.remote(where)) == (cluster.head_node.node_id, [])
        assert {kind: backend.placed(setup).run.device for kind, setup in setups.items()} == {
            "learner": "cuda",
            "actor": "cpu",
        }
        # One more finds no place, and it is known what it lacks.
        again = dataclasses.replace(setups["learner"], name=RoleName("learner", 1))
        backend.start(again)
        until(
            lambda: backend.why_not_started(again.name) == "asks for 1 GPU, and the Ray cluster has 1, 0 of them free"
        )
        backend.kill(again.name)
        # The one there is is taken now; and it would never be enough for actors with a share of their own.
        with pytest.raises(DeviceError, match=r"takes 1 GPUs \(1 for each learner of 1\), .* has 1, 0 of them free"):
            train(apex_dqn, "CartPole-v1", runner="ray", config=CONFIG, run=run)
    finally:
        backend.close()
    shared = dataclasses.replace(run, gpus_per_actor=0.25)
    with pytest.raises(
        DeviceError, match=r"takes 1\.75 GPUs \(1 for .*, 0\.25 for each actor of 2, 0\.25 for each evalu"
    ):
        train(apex_dqn, "CartPole-v1", runner="ray", config=CONFIG, run=shared)


def test_a_run_without_room_on_any_node_of_its_cluster_is_refused_at_once(cluster):
    large = dataclasses.replace(CONFIG, capacity=10**9)
    with pytest.raises(
        NoRoomError, match=r"no node has room for a role 'shard', .*, of 2 nodes, has .* left: add nodes"
    ):
        train(apex_dqn, "CartPole-v1", runner="ray", config=large, run=RUN)


def test_a_stopped_process_is_noticed_with_the_command_that_resumes_it(cluster, until, monkeypatch):
    monkeypatch.setattr(probes, "AGAIN_SECONDS", 0.0)
    topology = plan(apex_dqn, "CartPole-v1", config=CONFIG, run=RUN, runner="ray")
    backend = on_ray.Cluster(topology)
    try:
        name = RoleName("evaluator", alone=True)
        backend.start(RoleSetup(name, apex_dqn, topology.env, CONFIG, RUN, num_shards=1, seed=0))
        reported = []
        until(lambda: reported.extend(backend.listen(0.1)) or reported)
        ((_, ready),) = reported
        assert backend.why_stopped(name) == ""
        os.kill(ready.pid, signal.SIGSTOP)
        until(lambda: backend.listen(0.1) == [] and backend.why_stopped(name) != "")
        address = ray.util.get_node_ip_address()
        assert backend.why_stopped(name) == f"is stopped (kill -CONT {ready.pid} on {address} resumes it)"
        os.kill(ready.pid, signal.SIGCONT)
        until(lambda: backend.listen(0.1) == [] and backend.why_stopped(name) == "")
    finally:
        backend.close()


@pytest.mark.timeout(2700)  # some fifteen processes begin, one after the other, and each imports PyTorch
def test_dead_roles_and_a_removed_node_are_replaced(cluster, places, tmp_path):
    events, left, moved = [], [("actor 0", "shard 1"), ("learner", "evaluator")], []
    marks, killed = [], {}

    def restarted(since=0):
        return {event.role for event in events[since:] if isinstance(event, RoleRestarted)}

    def on_event(event):
        events.append(event)
        again = all(role in restarted(since) for role, since in killed.items())
        if not isinstance(event, Progress) or len(places) < 6 or not again:
            return
        # The next thing happens once the run has acted and learnt since the last.
        if marks and (event.env_steps < marks[-1].env_steps + 50 or event.updates <= marks[-1].updates):
            return
        if event.learner.get("priorities_applied", 0) == 0 or not saved():
            return
        if left:
            marks.append(event)
            for role in left.pop(0):
                killed[role] = len(events)
                os.kill(places.pop(role).pid, signal.SIGKILL)
        elif not moved:
            marks.append(event)
            moved.extend(role for role, ready in places.items() if ready.host == cluster.other.node_id)
            for role in moved:
                killed[role] = len(events)
                del places[role]
            cluster.remove_node(cluster.other)
        else:
            finished.append(event)

    def saved():
        return any(isinstance(event, Saved) for event in events)

    finished = []
    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            apex_dqn,
            "CartPole-v1",
            runner="ray",
            config=CONFIG,
            run=RUN,
            num_shards=2,
            on_event=on_event,
            folder=tmp_path,
            should_stop=lambda: bool(finished),
        )
    # Each of those that were killed, and all that lived on the other node, which live on this one now.
    assert set(killed) == {"actor 0", "learner", "shard 1", "evaluator", *moved}
    assert all(role in restarted(since) for role, since in killed.items())
    assert moved
    assert cluster.other.node_id not in {ready.host for ready in places.values()}
    assert len(places) == 6
    went_on = {event.role: event.resumed_from for event in reversed(events) if isinstance(event, RoleRestarted)}
    assert "with a new seed" in went_on["actor 0"]
    assert went_on["learner"].startswith("update ")
    steps = [event.env_steps for event in events if isinstance(event, Progress)]
    assert steps == sorted(steps)
    assert checkpoints.load(caught.value.checkpoint)["env_steps"] == caught.value.env_steps >= finished[0].env_steps


@pytest.mark.parametrize("journal", [None, "fast"])
def test_a_stopped_run_on_ray_saves_and_resumes_and_releases_its_actors(cluster, tmp_path, until, monkeypatch, journal):
    monkeypatch.chdir(tmp_path)  # a relative folder is in this one, and not in that of Ray's workers
    seen, began = [], dataclasses.replace(RUN, replay_journal=journal)

    def stop():
        return any(isinstance(event, Progress) and event.env_steps > 300 for event in seen)

    # As few roles as there can be: every one of them imports PyTorch.
    options = {"config": dataclasses.replace(CONFIG, num_actors=1)}
    with pytest.raises(StoppedError, match="saved as") as caught:
        train(
            apex_dqn,
            "CartPole-v1",
            runner="ray",
            run=began,
            folder=tmp_path / "run",
            on_event=seen.append,
            should_stop=stop,
            **options,
        )
    state = checkpoints.load(caught.value.checkpoint)
    assert len(state["actors"]) == 1
    if journal is not None:
        (own,) = (tmp_path / "fast").iterdir()
        assert [path.name for path in own.iterdir()] == ["replay-1"]
        options["folder"] = tmp_path / "run"
    run = dataclasses.replace(began, max_env_steps=state["env_steps"] + 200)
    result = train(apex_dqn, "CartPole-v1", runner="ray", run=run, resume=caught.value.checkpoint, **options)
    assert result.env_steps >= run.max_env_steps
    assert result.replay["inserts"] > state["env_steps"] * 0.9
    assert result.learner["updates"] > state["updates"]
    # Nothing of the runs holds a CPU any more.
    until(lambda: free("CPU") == ray.cluster_resources()["CPU"])


class Killed(Exception):
    """Ends the supervisor of a run whose roles were killed: it saves nothing more."""


def test_a_run_on_ray_whose_processes_are_all_killed_continues_with_the_replay_of_its_journal(
    cluster, places, tmp_path, monkeypatch
):
    listen, confirmed = on_ray.Cluster.listen, []

    def listening(backend, timeout):
        reports = listen(backend, timeout)
        confirmed.extend(int(report.figures["inserts"]) for _, report in reports if isinstance(report, ShardReport))
        return reports

    def counted():
        return sum(one["env_steps"] for one in actor_counts.load(tmp_path / "run" / "checkpoints" / "replay-1") or [])

    def kill(event):
        far = isinstance(event, Progress) and len(places) == 4 and confirmed[-1:] > [300] and event.updates > 10
        # Progress is also reported while the first checkpoint is being written.
        far = far and checkpoints.any_in(tmp_path / "run")
        if far and counted() > checkpoints.load(checkpoints.find(tmp_path / "run"))["env_steps"]:
            for ready in places.values():
                os.kill(ready.pid, signal.SIGKILL)
            raise Killed

    monkeypatch.setattr(on_ray.Cluster, "listen", listening)
    run = dataclasses.replace(RUN, checkpoint_every=10**9, replay_journal="run")
    config = dataclasses.replace(CONFIG, num_actors=1)
    options = {"runner": "ray", "config": config, "folder": tmp_path / "run"}
    with pytest.raises(Killed):
        train(apex_dqn, "CartPole-v1", run=run, on_event=kill, **options)
    # The learner has only the checkpoint of the start, and the journal has what the server confirmed.
    steps = counted()
    assert checkpoints.load(checkpoints.find(tmp_path / "run"))["env_steps"] < min(steps, confirmed[-1])
    shutil.copytree(tmp_path / "run" / "checkpoints" / "replay-1", tmp_path / "copy")
    tables = apex_dqn.make_tables(describe("CartPole-v1"), config, seed=0)
    with reverie.Server(tables, journal=reverie.Journal(tmp_path / "copy"), listen=False) as server:
        left = server.tables[0].info
    assert left.num_inserts >= confirmed[-1]

    places.clear()
    began = []

    def note(event):
        if not began and "shard 0" in places and isinstance(event, Progress):
            began.append((places["shard 0"].items, event.env_steps))

    goal = left.num_inserts + 200
    result = train(
        apex_dqn,
        "CartPole-v1",
        run=dataclasses.replace(run, max_env_steps=goal),
        resume=True,
        on_event=note,
        **options,
    )
    ((items, env_steps),) = began
    assert items == left.current_size  # before anything of the resumed run went in
    assert env_steps >= steps  # those that were counted after the checkpoint, too
    assert result.env_steps >= goal
    assert result.replay["inserts"] > left.num_inserts


def test_the_page_of_a_run_on_ray_is_at_the_node_of_its_first_shard_and_asks_for_its_token(cluster):
    def on_event(event):
        if isinstance(event, PageOpened):
            urls.append(event.url)
        if isinstance(event, Progress) and event.updates and urls:
            request = urllib.request.Request(f"{urls[0]}api/run", headers={"Authorization": "Bearer sesame"})
            with urllib.request.urlopen(request, timeout=200) as response:
                run = json.load(response)
            if run and run["updates"]:
                shown.append(run)
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    urllib.request.urlopen(f"{urls[0]}api/run", timeout=200)

    urls, shown = [], []
    with pytest.raises(StoppedError):
        train(
            apex_dqn,
            "CartPole-v1",
            runner="ray",
            run=RUN,
            config=dataclasses.replace(CONFIG, num_actors=1),
            http=Page("0.0.0.0:0", "sesame", insecure=True),
            on_event=on_event,
            should_stop=lambda: bool(shown),
        )
    assert (shown[0]["runner"], shown[0]["agent"]) == ("ray", "apex-dqn")
    assert urls[0].startswith("http://")
    assert "0.0.0.0" not in urls[0]
