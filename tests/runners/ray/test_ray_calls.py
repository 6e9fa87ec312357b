"""The calls of Ray that a run makes, and its reactions to Ray's errors; Ray's own calls are replaced."""

import dataclasses
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("cryptography")

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, ObjectLostError, RayError, RpcError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import RunSettings
from reverie.parameters.ray import NewestReference
from reverie.runners import ClusterNode, plan
from reverie.runners.links.messages import RoleEnded, RoleName, RoleSetup
from reverie.runners.planning.memory_parts import PROCESS_BYTES
from reverie.runners.ray import cluster as on_ray
from reverie.runners.ray import queued_requests

CONFIG = dataclasses.replace(apex_dqn.load_preset("CartPole-v1").config, num_actors=2)
RUN = RunSettings(target_return=None, max_env_steps=10**9, evaluate_every=500)


def test_the_server_of_newest_weights_runs_on_the_supervisors_node(monkeypatch):
    """Ray places an actor without resources on any node; if that node were lost, actors would wait for weights."""
    asked, here = [], "5" * 56

    class Asked:
        def options(self, **options):
            asked.append(options)
            return self

        def remote(self):
            return None

    for figures in ("cluster_resources", "available_resources"):
        monkeypatch.setattr(ray, figures, lambda: {"CPU": 4.0})
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: here))
    monkeypatch.setattr(on_ray, "nodes", lambda: [ClusterNode("here", 2**40, 4.0)])
    monkeypatch.setattr(ray, "remote", lambda what: Asked() if what is NewestReference else None)
    on_ray.Cluster(plan(apex_dqn, "CartPole-v1", config=CONFIG, run=RUN, runner="ray"))
    (options,) = asked
    strategy = options.pop("scheduling_strategy")
    assert (type(strategy), strategy.node_id, strategy.soft) == (NodeAffinitySchedulingStrategy, here, False)
    assert options == {"num_cpus": 0, "max_restarts": -1}


@pytest.mark.parametrize("check_memory", [True, False])
def test_a_role_requests_its_memory_from_ray_if_memory_is_checked(monkeypatch, check_memory):
    asked = Mock()
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    for figures in ("cluster_resources", "available_resources"):
        monkeypatch.setattr(ray, figures, lambda: {"CPU": 4.0})
    monkeypatch.setattr(on_ray, "nodes", lambda: [ClusterNode("here", 2**40, 4.0)])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "5" * 56))
    monkeypatch.setattr(ray, "remote", lambda what: asked)
    topology = plan(apex_dqn, "CartPole-v1", config=CONFIG, run=RUN, runner="ray")
    backend = on_ray.Cluster(topology, check_memory=check_memory)
    for place in topology.places:
        asked.reset_mock()
        name = RoleName(place.role)
        backend.start(RoleSetup(name, apex_dqn, topology.env, CONFIG, RUN, num_shards=1, seed=0))
        assert place.memory_bytes >= PROCESS_BYTES
        assert asked.options.call_args.kwargs["memory"] == (place.memory_bytes if check_memory else 0)


def test_roles_that_start_together_request_no_more_cpus_than_there_are(monkeypatch):
    for figures in ("cluster_resources", "available_resources"):
        monkeypatch.setattr(ray, figures, lambda: {"CPU": 4.0})
    backend = object.__new__(on_ray.Cluster)
    backend._share, backend._wanted_cpus, backend._running = 1.0, {"actor": 1.0}, {}
    for index in range(6):
        name = RoleName("actor", index)
        backend._running[name] = SimpleNamespace(resources={"CPU": backend._cpus(name)})
    assert [one.resources["CPU"] for one in backend._running.values()] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    # A restarted role requests the same again.
    assert backend._cpus(RoleName("actor", 0)) == 1.0


@pytest.mark.parametrize(
    ("queued", "lacks"),
    [
        ([], ""),
        ([{"CPU": 0.5}, {"CPU": 0.75, "memory": 9.0}], ""),
        ([{"CPU": 0.5}, {"CPU": 0.75}], "asks for 0.75 CPU, and the Ray cluster has 3, 0 of them free"),
    ],
)
def test_a_role_lacks_a_resource_only_while_ray_holds_its_request_back(monkeypatch, queued, lacks):
    """Once it has its place, what it was given is not free, and its process takes seconds to start."""
    name, bundles = RoleName("actor", 0), [SimpleNamespace(bundle=one, count=1) for one in queued]
    demand = SimpleNamespace(ray_task_actor_demand=[SimpleNamespace(bundles_by_count=[one]) for one in bundles])
    status = Mock(return_value=SimpleNamespace(resource_demands=demand))
    monkeypatch.setattr(queued_requests, "get_cluster_status", status)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:1"))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 3.0})
    monkeypatch.setattr(ray, "available_resources", dict)
    monkeypatch.setattr(on_ray, "nodes", list)
    monkeypatch.setattr(on_ray, "_is_placed", lambda host: False)
    backend = object.__new__(on_ray.Cluster)
    backend._running = {name: SimpleNamespace(host="host", resources={"GPU": 0.0, "CPU": 0.75}, memory=0)}
    assert backend.why_not_started(name) == lacks
    status.side_effect = RpcError("no answer")
    assert backend.why_not_started(name) == "", "a head that does not answer ends no run"


@pytest.mark.parametrize(
    "error", [ActorDiedError(), ActorUnavailableError("a link is down", None), ObjectLostError("0" * 56, "", "")]
)
def test_an_unreachable_role_or_one_with_lost_reports_is_killed_and_reported_as_died(monkeypatch, error):
    """Reports of a role are stored on its node: if the node is lost, Ray reports a lost object and not a dead actor."""
    killed, name = [], RoleName("actor", 0)
    backend = object.__new__(on_ray.Cluster)
    backend._running, backend._killed = {name: SimpleNamespace(drain="drain", host="host")}, []
    monkeypatch.setattr(ray, "wait", lambda refs, **options: (refs, []))
    monkeypatch.setattr(ray, "get", Mock(side_effect=error))
    monkeypatch.setattr(ray, "kill", killed.append)
    ((role, report),) = backend.listen(0)
    assert (role, type(report)) == (name, RoleEnded)
    assert (killed, backend._running) == (["host"], {})


def test_the_reason_of_a_restart_is_what_ray_found_without_its_list_of_possible_causes():
    found = "The actor is dead because its worker process has died. Worker exit detail: End of file."
    error = RayError(f"The actor died unexpectedly.\n\tpid: 7\n{found} Some common causes include: (1) the process was")
    assert on_ray._reason(error) == f"its Ray actor died: {found}"
