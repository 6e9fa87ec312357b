"""Seeds of roles: of each role, of its restarts, and of resumed runs."""

import dataclasses

from scripted_roles import SHARD

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import seed_of
from reverie.agents.gorila import agent as gorila
from reverie.runners import plan
from reverie.runners.links.messages import (
    RoleName,
)
from reverie.runners.supervision import role_group
from reverie.runners.supervision.role_setups import RoleSetups


def test_no_two_restarts_have_the_same_seed_before_or_after_a_resume():
    config = dataclasses.replace(gorila.load_preset("CartPole-v1").config, num_learners=2, num_actors=2)
    topology = plan(gorila, "CartPole-v1", config=config, runner="process", seed=3)
    names = [RoleName(kind, index) for kind in ("shard", "learner", "actor", "bundle") for index in range(4)]
    seeds = {}
    for state in (None, {"env_steps": 1}, {"env_steps": 5_000}):
        setups = RoleSetups(gorila, topology, state)
        for name in (*names, role_group.EVALUATOR):
            for generation in range(4):
                seeds.setdefault(setups.seed(name, generation), []).append((name, generation, state))
    # A learner, an evaluator and actors start with the same seed again: their random states are in the checkpoint.
    again = [found for found in seeds.values() if len(found) > 1]
    assert all(len({name for name, *_ in found}) == 1 for found in again)
    assert {generation for found in again for _, generation, _ in found} == {0}


def test_a_role_starts_with_the_seed_that_it_has_in_one_process():
    topology = plan(apex_dqn, "CartPole-v1", runner="process", seed=3)
    setups = RoleSetups(apex_dqn, topology, None)
    assert setups.seed(RoleName("learner"), 0) == seed_of(3, 1)
    assert [setups.seed(RoleName("actor", index), 0) for index in range(3)] == [seed_of(3, 2, i) for i in range(3)]


def test_a_resumed_run_gives_tables_new_seeds_and_actors_the_same():
    topology = plan(apex_dqn, "CartPole-v1", runner="process")

    def seeds(state):
        setups = RoleSetups(apex_dqn, topology, state)
        return setups.seed(SHARD, 0), setups.seed(RoleName("actor", 0), 0)

    (start, actor), (once, one), (later, two) = (
        seeds(state) for state in (None, {"env_steps": 500}, {"env_steps": 900})
    )
    assert len({start, once, later}) == 3
    assert actor == one == two
