"""Nodes of a cluster with room for each role: planned without a cluster, and checked with one."""

import dataclasses
import importlib

import pytest

pytest.importorskip("torch")

from reverie import _memory
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.gorila import agent as gorila
from reverie.agents.impala import agent as impala
from reverie.agents.ppo import agent as ppo
from reverie.runners import ClusterNode, NoRoomError, plan, train
from reverie.runners.planning import devices, memory
from reverie.runners.planning.nodes import from_ray, missing_memory, parse_nodes, place

GIB = 2**30


def planned(agent=apex_dqn, **changes):
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, **changes)
    return plan(agent, "CartPole-v1", config=config, runner="ray", num_shards=1)


def test_the_memory_of_this_machine_does_not_limit_a_run_on_a_cluster(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: GIB)
    assert planned(num_actors=60).memory_bytes > 20 * GIB


def test_every_node_gets_what_it_has_room_for_and_the_largest_role_goes_where_most_is_left():
    topology = planned(num_actors=60, capacity=20_000_000)
    (shard,) = [one for one in topology.places if one.role == "shard"]
    assert 4 * GIB < shard.memory_bytes < 8 * GIB
    nodes = [ClusterNode("large", 8 * GIB, 4.0), *(ClusterNode(f"small {i}", 5 * GIB, 16.0) for i in range(5))]
    placed = {node.name: roles for node, roles in place(topology, nodes)}
    assert placed["large"]["shard"] == 1
    assert sum(sum(roles.values()) for roles in placed.values()) == topology.num_processes - 1 == 63
    sizes = {one.role: one.memory_bytes for one in topology.places}
    for node in nodes:
        assert sum(count * sizes[role] for role, count in placed[node.name].items()) <= node.memory


def test_a_role_that_fits_on_no_single_node_is_refused_by_its_name():
    topology = planned(capacity=20_000_000)
    nodes = [ClusterNode(f"small {i}", 4 * GIB, 16.0) for i in range(10)]
    assert topology.memory_bytes < sum(node.memory for node in nodes)
    with pytest.raises(
        NoRoomError,
        match=r"after 0 of them no node has room for a role 'shard', which needs about 4\.\d GiB; .* of 10 nodes",
    ) as caught:
        place(topology, nodes)
    assert (caught.value.role, caught.value.available) == ("shard", 4 * GIB)
    assert caught.value.needed > 4 * GIB


def test_plan_checks_the_given_nodes_unless_check_memory_is_false():
    options = {"runner": "ray", "nodes": [ClusterNode("small", GIB, 4.0)]}
    with pytest.raises(NoRoomError):
        plan(apex_dqn, "CartPole-v1", **options)
    assert plan(apex_dqn, "CartPole-v1", check_memory=False, **options).memory_bytes > GIB
    with pytest.raises(MemoryError):
        plan(apex_dqn, "CartPole-v1", available_bytes=1)
    assert plan(apex_dqn, "CartPole-v1", available_bytes=1, check_memory=False).memory_bytes > 1


def test_roles_that_ask_for_a_gpu_find_room_on_nodes_that_have_one():
    run = dataclasses.replace(apex_dqn.load_preset("CartPole-v1").run, device="cuda")
    topology = plan(apex_dqn, "CartPole-v1", run=run, runner="ray")
    nodes = [ClusterNode("cpus", 64 * GIB, 64.0), ClusterNode("gpu", GIB, 1.0, gpus=1.0)]
    placed = {node.name: roles for node, roles in place(topology, nodes)}
    assert placed["gpu"]["learner"] == 1
    with pytest.raises(
        NoRoomError, match=r"'learner', which needs about \d+ MiB and 1 GPU; .*, of 1 node, has 100 MiB left"
    ):
        place(topology, [nodes[0], ClusterNode("gpu", 100 * 2**20, 1.0, gpus=1.0)])
    with pytest.raises(devices.DeviceError, match="takes 1 GPUs"):
        plan(apex_dqn, "CartPole-v1", run=run, runner="ray", nodes=nodes[:1])


@pytest.mark.parametrize(
    ("agent", "changes"),
    [
        (apex_dqn, {"hidden": (512, 512), "num_actors": 7}),
        (impala, {}),
        (ppo, {}),
        (gorila, {"num_learners": 3, "num_actors": 3, "num_parameter_shards": 2}),
        (gorila, {"bundled": True, "num_actors": 2, "num_learners": 2}),
    ],
)
def test_the_memory_of_the_roles_adds_up_to_that_of_the_run(agent, changes):
    topology = planned(agent, **changes)
    together = sum(one.count * one.memory_bytes for one in topology.places) + memory.PROCESS_BYTES
    (evaluator,) = [one for one in topology.places if one.role == "evaluator"]
    copy = evaluator.memory_bytes - memory.PROCESS_BYTES  # which the run's own sum leaves out
    assert 0 <= together - topology.memory_bytes <= copy + len(topology.places)
    assert all(one.memory_bytes == topology.memory_of(one.role) for one in topology.places)


def test_nodes_are_described_by_memory_cpus_and_gpus():
    assert parse_nodes("64GB") == [ClusterNode("node of 64GB", 64 * 10**9)]
    assert parse_nodes("2x1.5TiB, 16, 0.5") == [ClusterNode("node of 1.5TiB", 3 * 2**39, 16.0, 0.5)] * 2
    for text in ("", "64", "64 QB", "0x64GB", "x64GB", "0GB", "64GB,many", "-1x64GB"):
        with pytest.raises(ValueError, match="a node is"):
            parse_nodes(text)


def test_nodes_of_a_cluster_are_those_alive_with_the_free_resources_that_ray_reports():
    known = [
        {"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.1"},
        {"NodeID": "b", "Alive": False, "NodeManagerAddress": "10.0.0.2"},
        {"NodeID": "c", "Alive": True, "NodeManagerAddress": "10.0.0.3"},
    ]
    free = {"a": {"memory": 5.0 * GIB, "CPU": 3.0}, "c": {"CPU": 1.0, "GPU": 2.0, "memory": 1e9}}
    assert from_ray(known, free) == [ClusterNode("10.0.0.1", 5 * GIB, 3.0), ClusterNode("10.0.0.3", 10**9, 1.0, 2.0)]


def test_missing_memory_is_reported_for_the_largest_node():
    nodes = [ClusterNode("a", 3 * GIB), ClusterNode("b", 2 * GIB)]
    assert missing_memory(3 * GIB, nodes) == ""
    assert missing_memory(4 * GIB, nodes) == (
        "asks for 4.0 GiB of memory, and the node with the most memory has 3.0 GiB free"
    )


@pytest.mark.parametrize("address", [None, "auto"])
def test_a_run_that_starts_ray_must_fit_this_machine_and_one_that_joins_must_fit_the_cluster(monkeypatch, address):
    pytest.importorskip("ray")
    pytest.importorskip("cryptography")
    on_ray = importlib.import_module("reverie.runners.ray.cluster")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(on_ray.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(_memory, "available_memory", lambda: GIB)

    class BeganError(Exception):
        pass

    def begin(address):
        raise BeganError

    monkeypatch.setattr(on_ray, "connected", begin)
    with pytest.raises(NoRoomError if address is None else BeganError):
        train(apex_dqn, "CartPole-v1", runner="ray", address=address)
    with pytest.raises(BeganError):
        train(apex_dqn, "CartPole-v1", runner="ray", address=address, check_memory=False)
