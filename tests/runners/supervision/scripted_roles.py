"""A group of roles on a backend that records what it is given; the test writes the reports."""

import dataclasses
import os

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.runners import plan
from reverie.runners.links.messages import (
    RoleName,
    RoleReady,
    ShardEndpoint,
    ShardSettings,
)
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.supervision.role_group import EVALUATOR, RoleGroup
from reverie.sharding import shard_table

LEARNER = RoleName("learner", alone=True)
SHARD = RoleName("shard")


class ScriptedRoles:
    """A backend without processes: it records starts, commands and kills."""

    weights = None

    def __init__(self):
        self.started, self.sent, self.killed, self.next, self.moves = [], [], [], [], []
        self.stops = {}

    def serving(self, name, storage, before):
        return ShardSettings(storage=storage)

    def endpoint(self, name, ready):
        return ShardEndpoint(ready.address)

    def parameter_addresses(self, shards):
        return [shard.generation for shard in shards]

    def start(self, setup):
        self.started.append(setup)

    def send(self, name, command):
        self.sent.append((name, command))

    def listen(self, timeout):
        reported, self.next = self.next, []
        return reported

    def kill(self, name):
        self.killed.append(name)

    def why_not_started(self, name):
        return ""

    def why_stopped(self, name):
        return self.stops.get(name, "")

    def newest(self, name):
        """The setup that a role was started with last."""
        return next(setup for setup in reversed(self.started) if setup.name == name)


def make_roles(agent, storage=ReplayStorage(), **changes):  # noqa: B008 - it is frozen
    """A group of roles and its backend, which have sent no report; and a function that lets one report."""
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, **changes)
    backend, restarted = ScriptedRoles(), []
    roles = RoleGroup(
        backend,
        agent,
        plan(agent, "CartPole-v1", config=config, runner="process"),
        [storage],
        state=None,
        on_report=lambda name, report: None,
        on_restart=lambda name, *what: restarted.append((name, *what) if storage.journal else name),
        on_move=lambda *what: backend.moves.append(what),
    )
    roles.start_shards()

    def receive(name, report):
        backend.next.append((name, report))
        roles.listen(0)

    return roles, backend, receive, restarted


def make_table():
    topology = plan(apex_dqn, "CartPole-v1")
    (table,) = apex_dqn.make_tables(topology.env, topology.config, seed=0)
    return table


def make_shards(count):
    return [[table] for table in shard_table(make_table(), count)[0]]


def here(address=None):
    return RoleReady(os.getpid(), "here", address)


def make_started_roles(agent):
    """A group of roles that have all started."""
    roles, backend, receive, restarted = make_roles(agent)
    receive(SHARD, here("a:1"))
    roles.start_others()
    for name in (LEARNER, EVALUATOR, *roles.actors):
        receive(name, here())
    return roles, backend, receive, restarted
