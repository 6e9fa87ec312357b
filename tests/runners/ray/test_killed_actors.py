"""An actor of a role is started again once the process of the killed one has ended, as on one machine."""

import dataclasses
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("cryptography")

import ray

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import RunSettings
from reverie.runners import plan
from reverie.runners.links.messages import RoleName, RoleSetup
from reverie.runners.ray import cluster as on_ray
from reverie.runners.ray import killed_actors

# One cluster, in one worker.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]

CONFIG = dataclasses.replace(apex_dqn.load_preset("CartPole-v1").config, num_actors=1)
RUN = RunSettings(target_return=None, max_env_steps=10**9, evaluate_every=500)


@pytest.fixture
def child():
    """A process that ends when the test lets it."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def backend(ray_head):
    backend = on_ray.Cluster(plan(apex_dqn, "CartPole-v1", config=CONFIG, run=RUN, runner="ray"))
    yield backend
    backend.close()


def setup_of(name):
    topology = plan(apex_dqn, "CartPole-v1", config=CONFIG, run=RUN, runner="ray")
    return RoleSetup(name, apex_dqn, topology.env, CONFIG, RUN, num_shards=1, seed=0)


def test_the_next_actor_of_a_role_begins_after_the_end_of_the_killed_process(
    backend, child, monkeypatch, until, tmp_path
):
    first, other = RoleName("shard"), RoleName("actor")
    asked_to_run, began = tmp_path / "asked", tmp_path / "began"

    class Noting(on_ray.RoleActor):
        """A role that notes whether it begins before or after the end of the killed process."""

        def run(self, setup, killed=()):
            import reverie.runners.ray.role_actor as of_actor

            def note(setup, link):
                if setup.name == first:
                    began.write_text("after" if ray.wait(list(killed), timeout=0)[0] else "before")

            of_actor.run_role = note
            if setup.name == first:
                asked_to_run.touch()
            super().run(setup, killed)

    monkeypatch.setattr(on_ray, "RoleActor", Noting)
    here = ray.get_runtime_context().get_node_id()
    asked = []

    def process_of(host):
        asked.append(host)
        return here, child.pid

    monkeypatch.setattr(killed_actors, "_process_of", process_of)
    for name in (first, other):
        backend.start(setup_of(name))
    hosts = [backend._running[name].host for name in (first, other)]
    until(began.exists)
    assert asked == []
    for name in (first, other):
        backend.kill(name)
    asked_to_run.unlink()
    began.unlink()
    backend.start(setup_of(first))
    assert asked == hosts[:1], "the killed one of this role only"
    until(asked_to_run.exists)
    assert not began.exists()
    child.communicate(b"\n")
    until(lambda: began.exists() and began.read_text())
    assert began.read_text() == "after"
    assert [name for name, _ in backend._killed] == [other]


def test_a_killed_actor_whose_process_has_not_ended_is_waited_for_until_it_has(backend, until):
    name = RoleName("evaluator", alone=True)
    backend.start(setup_of(name))
    host, reports = backend._running[name].host, []
    until(lambda: reports.extend(backend.listen(0.1)) or reports)
    ((_, ready),) = reports
    assert killed_actors._process_of(host) == (ready.host, ready.pid)
    backend.kill(name)
    # Ray reports no more about its end than that it was killed.
    until(lambda: ray._private.state.actors(host._actor_id.hex())["State"] == "DEAD")
    (end,) = killed_actors.ends_of([host])
    ray.get(end)
    with pytest.raises(ProcessLookupError):
        os.kill(ready.pid, 0)


def test_a_wait_for_the_end_of_a_process_is_bounded_and_an_actor_without_a_process_needs_none(
    ray_head, child, monkeypatch
):
    monkeypatch.setattr(killed_actors, "KILL_SECONDS", 0.05)
    wait = killed_actors._make_wait()
    wait(child.pid, 0.05)
    assert child.poll() is None
    never = ray.remote(num_cpus=100)(lambda: None).remote()
    killed_actors.wait_for([never])
    ray.cancel(never)

    @ray.remote(num_cpus=100)
    class TooLarge:
        pass

    host = TooLarge.remote()
    ray.kill(host)
    assert killed_actors.ends_of([host]) == []
    killed_actors.wait_for([])
