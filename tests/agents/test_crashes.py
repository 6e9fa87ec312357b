"""Actors with environments that raise, and with full tables."""

import dataclasses
from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.core import EnvironmentCrashedError, Stopwatch
from reverie.agents.env_actor import CRASHES_IN_A_ROW
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe
from reverie.errors import DeadlineExceededError
from reverie.runners import EnvironmentRestarted, train
from reverie.runners.reports import logs


class Crashing(gymnasium.Env):
    """Observations count the steps of all of them; the steps named in `AT` raise, each once, or all in `ALWAYS`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    at: tuple[int, ...] = ()
    always_after = 10**9
    length = 7
    made = steps = 0

    def __init__(self):
        type(self).made += 1
        self.number = type(self).made

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        kind = type(self)
        kind.steps += 1
        if kind.steps in kind.at or kind.steps > kind.always_after:
            raise RuntimeError("the simulator is gone")
        self.t += 1
        return self._obs(), 1.0, self.t == self.length, False, {}

    def _obs(self):
        return np.array([self.number, self.t], np.float32)


@pytest.fixture
def crashing(monkeypatch):
    """The id of an environment, and its class."""
    env_id = "ReverieCrashing-v0"
    kind = type("OneRun", (Crashing,), {})
    gymnasium.register(env_id, lambda: kind())
    yield env_id, kind
    del gymnasium.registry[env_id]


class Weights:
    def latest(self, newer_than):
        return None


def actor_of(name, env_id, environment=None, **changes):
    agent = agents.find(name)
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, num_actors=1, envs_per_actor=2, **changes)
    spec = describe(env_id, environment)
    server = reverie.Server(agent.make_tables(spec, config, seed=0), listen=False)
    client = server.client()
    actor = agent.make_actor(spec, config, client, Weights(), index=0, seed=3, watch=Stopwatch())
    return actor, client


def test_the_place_of_an_error_is_in_the_environment_and_not_in_the_library_that_it_calls(crashing):
    env_id, kind = crashing
    actor, _ = actor_of("dqn", env_id)

    def step(self, action):
        return np.stack([np.zeros(2), np.zeros(3)]), 1.0, False, False, {}

    kind.step, line = step, step.__code__.co_firstlineno + 1
    actor.act()
    (crash,) = actor.drain_crashes()
    assert crash.error.startswith("ValueError: ")
    assert crash.error.endswith(f"({__file__}, line {line})")


def test_a_crash_is_reported_with_its_seed_and_step_and_no_item_spans_it(crashing):
    env_id, kind = crashing
    actor, client = actor_of("apex-dqn", env_id, n_step=2)
    client.configure("replay", rate_limiter=reverie.rate_limiters.MinSize(1))
    kind.at = (kind.steps + 23,)
    seeds = [actor._seed]
    for _ in range(40):
        actor.act()
    (crash,) = actor.drain_crashes()
    assert actor.drain_crashes() == []
    assert (crash.env_id, crash.seed) == (env_id, seeds[0])
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "raise RuntimeError" in text)
    assert crash.error == f"RuntimeError: the simulator is gone ({__file__}, line {line})"
    # Two environments: the 23rd step of both together is of the twelfth of each, two of which were resets.
    assert crash.step in (11, 12)
    assert actor._seed != seeds[0]
    batch = client.sample_batch("replay", 4000, timeout=0)
    before, after = batch.data["obs"], batch.data["next_obs"]
    assert (before[:, 0] == after[:, 0]).all()
    steps = after[:, 1] - before[:, 1]
    assert set(steps.tolist()) == {1.0, 2.0}
    assert (batch.data["reward"] == np.where(steps == 2, 1 + 0.99, 1).astype(np.float32)).all()
    # The first one was made to describe the environment, two before the crash, and two after it.
    assert set(before[:, 0].tolist()) == {2, 3, 4, 5}


def test_episodes_that_a_crash_cuts_off_bootstrap_from_their_last_observation(crashing):
    env_id, kind = crashing
    actor, client = actor_of("apex-dqn", env_id, n_step=3, discount=0.9, priority_clip=0.0)
    client.configure("replay", rate_limiter=reverie.rate_limiters.MinSize(1))
    kind.at = (kind.steps + 9,)  # two environments: in the fifth step of each
    while not actor.drain_crashes():
        actor.act()
    batch = client.sample_batch("replay", 2_000, timeout=200)
    q = actor._policy.q_values
    taken = np.take_along_axis(q(batch.data["obs"]), batch.data["action"][:, None].astype(np.int64), axis=1)[:, 0]
    target = batch.data["reward"] + batch.data["discount"] * q(batch.data["next_obs"]).max(axis=1)
    # Steps, rewards and discounts of the items that end at the last observation before the crash: fewer than n steps.
    cut = batch.data["next_obs"][:, 1] - batch.data["obs"][:, 1] < 3
    assert set((batch.data["next_obs"] - batch.data["obs"])[cut, 1].tolist()) == {1.0, 2.0}
    error = np.abs(target - taken) + actor._config.priority_eps
    np.testing.assert_allclose(batch.info.priority, error, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dqn", "apex-dqn"])
@pytest.mark.parametrize("environment", [None, EnvSettings(frame_stack=2)])
def test_a_crash_while_another_environment_is_reset_loses_no_complete_step(crashing, name, environment):
    """The end of the other one's episode is complete, too; its observation comes before the step that raises."""
    env_id, kind = crashing
    kind.length = property(lambda env: 3 if env.number == 2 else 7)
    actor, client = actor_of(name, env_id, environment, n_step=1, discount=0.9)
    client.configure("replay", rate_limiter=reverie.rate_limiters.MinSize(1))
    # The fourth step of the second environment. With frame stacks the first has no reset step and has stepped again.
    kind.at = (kind.steps + (7 if environment is None else 8),)
    acts = 0
    while not actor.drain_crashes():
        acts += 1
        actor.act()
    assert acts == 4
    actor.settle()
    batch = client.sample_batch("replay", 2_000, timeout=0)
    newest = [batch.data[name].reshape(2_000, -1)[:, -2:].astype(int).tolist() for name in ("obs", "next_obs")]
    ends = batch.data["discount"] == 0
    items = {(*before, after[1], bool(end)) for before, after, end in zip(*newest, ends, strict=True)}
    assert {one for one in items if one[0] == 3} == {(3, 0, 1, False), (3, 1, 2, False), (3, 2, 3, False)}
    assert {one for one in items if one[0] == 2} == {(2, 0, 1, False), (2, 1, 2, False), (2, 2, 3, True)}


@pytest.mark.parametrize("limit", [None, 100])
def test_crashes_without_an_episodes_end_in_between_end_the_run_with_the_error_at_any_limit(crashing, limit):
    env_id, kind = crashing
    actor, _ = actor_of("dqn", env_id, environment=EnvSettings(max_env_restarts=limit))
    kind.always_after = kind.steps + 40

    def act_on():
        for _ in range(100):
            actor.act()

    with pytest.raises(EnvironmentCrashedError, match=r"raised 5 times .* from seed \d+: RuntimeError: the simul") as e:
        act_on()
    assert (e.value.crashes, e.value.crash.step) == (CRASHES_IN_A_ROW, 0)


def test_crashes_with_episodes_in_between_do_not_end_the_run(crashing):
    env_id, kind = crashing
    actor, _ = actor_of("dqn", env_id)
    kind.at = tuple(range(kind.steps + 30, kind.steps + 500, 40))
    for _ in range(250):
        actor.act()
    assert len(actor.drain_crashes()) > 2 * CRASHES_IN_A_ROW


@pytest.mark.parametrize("limit", [0, 2])
def test_environments_are_made_again_as_often_as_the_setting_allows(crashing, limit):
    env_id, kind = crashing
    actor, _ = actor_of("dqn", env_id, environment=EnvSettings(max_env_restarts=limit))
    kind.at = tuple(range(kind.steps + 30, kind.steps + 500, 40))

    def act_on():
        for _ in range(250):
            actor.act()

    raised = "raised at step" if limit == 0 else "raised 3 times, the last time at step"
    with pytest.raises(
        EnvironmentCrashedError, match=rf"{raised} .* is gone \(.*\) \(max_env_restarts is {limit}\)"
    ) as caught:
        act_on()
    assert (caught.value.crashes, caught.value.max_env_restarts) == (limit + 1, limit)
    assert len(actor.drain_crashes()) == limit + 1


def test_a_reset_that_raises_after_a_restart_is_repeated_and_counts_as_a_crash(crashing):
    env_id, kind = crashing
    actor, _ = actor_of("dqn", env_id)
    kind.at = (kind.steps + 9,)
    reset, failures = kind.reset, [2]

    def failing(self, **options):
        if kind.steps >= kind.at[0] and failures[0] > 0:
            failures[0] -= 1
            raise OSError("the simulator is starting")
        return reset(self, **options)

    kind.reset = failing
    for _ in range(20):
        actor.act()
    errors = [crash.error for crash in actor.drain_crashes()]
    expected = ["RuntimeError: the simulator is gone", *["OSError: the simulator is starting"] * 2]
    assert [error.partition(f" ({__file__}, line ")[0] for error in errors] == expected


def test_a_first_reset_that_raises_names_the_environment_and_its_seed(crashing):
    env_id, kind = crashing
    resumed, _ = actor_of("dqn", env_id)
    state = resumed.state_dict()

    def failing(self, **options):
        raise OSError("no simulator")

    kind.reset = failing
    with pytest.raises(
        EnvironmentCrashedError, match=r"raised at step 0 from seed \d+: OSError: no simulator"
    ) as caught:
        actor_of("dqn", env_id)
    with pytest.raises(EnvironmentCrashedError) as again:
        resumed.load_state_dict(state)
    for one in (caught, again):
        assert one.type is EnvironmentCrashedError
        assert isinstance(one.value.__cause__, OSError)


def test_an_evaluation_is_repeated_as_often_as_the_setting_allows(crashing):
    env_id, kind = crashing
    agent = agents.find("dqn")
    preset = agent.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, max_env_steps=30, evaluate_every=30, screening_episodes=1)
    for limit, attempts in ((0, 1), (1, 2)):
        kind.steps, kind.at, events = 0, tuple(range(40, 400)), []
        with pytest.raises(EnvironmentCrashedError):
            train(
                agent,
                env_id,
                preset=preset.path,
                run=run,
                environment=EnvSettings(max_env_restarts=limit),
                on_event=events.append,
            )
        assert len([event for event in events if isinstance(event, EnvironmentRestarted)]) == attempts


def test_ppo_restarts_its_unroll_after_a_crash(crashing):
    env_id, kind = crashing
    actor, client = actor_of("ppo", env_id, unroll_length=8)
    kind.at = (kind.steps + 9,)
    for _ in range(4 + 1 + 8):
        actor.act()
    assert len(actor.drain_crashes()) == 1
    rows = client.sample_batch("unrolls", 2, timeout=0).data
    assert set(rows["obs"][:, :, 0].ravel().tolist()) <= {kind.made - 1.0, float(kind.made)}


def test_a_run_continues_after_a_crash_and_reports_it(crashing):
    env_id, kind = crashing
    agent = agents.find("dqn")
    preset = agent.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, max_env_steps=300, evaluate_every=300, screening_episodes=1)
    kind.at = (150,)
    events = []
    result = train(agent, env_id, preset=preset.path, run=run, on_event=events.append)
    assert result.env_steps >= 300
    (reported,) = [event for event in events if isinstance(event, EnvironmentRestarted)]
    assert reported.crash.error.startswith(f"RuntimeError: the simulator is gone ({__file__}, line ")
    line = logs.as_line(reported)
    assert (line["event"], line["env_steps"], line["seed"]) == (
        "environment restarted",
        reported.env_steps,
        reported.crash.seed,
    )


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_settle_returns_at_once_if_there_is_room_and_else_raises_with_the_reason(name, crashing):
    env_id, _ = crashing
    changes = {"unroll_length": 4} if name == "ppo" else {"learning_starts": 4, "samples_per_insert": 100.0}
    actor, client = actor_of(name, env_id, **changes)
    table = next(iter(client.info().tables))
    acts = 0

    def act_on():
        nonlocal acts
        while acts < 500:
            actor.act()
            acts += 1
            actor.settle(timeout=0)

    with pytest.raises(DeadlineExceededError) as caught:
        act_on()
    assert acts > 1
    assert table in str(caught.value)
    held = client.info().tables[table].num_inserts
    client.sample_batch(table, 2 if name == "ppo" else 1_000, timeout=0)
    actor.settle(timeout=200)
    # The rows that were not accepted in time are there now, once.
    assert client.info().tables[table].num_inserts > held
    if name == "ppo":
        assert client.info().tables[table].num_inserts == 2 * (acts // 4)


def test_a_deadline_that_passes_as_the_last_row_goes_in_leaves_nothing_to_send(crashing):
    env_id, _ = crashing
    actor, client = actor_of("ppo", env_id, unroll_length=4)

    class Late:
        """Takes all rows, and reports that it was too late."""

        def insert_batch(self, table, rows, timeout):
            keys = client.insert_batch(table, rows, timeout=0)
            raise DeadlineExceededError("late", partial=keys)

    actor._client = Late()
    for _ in range(4):
        actor.act()
    actor.settle(timeout=0)
    assert client.info().tables["unrolls"].num_inserts == 2
