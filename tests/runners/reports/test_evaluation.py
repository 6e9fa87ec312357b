import dataclasses
import json
import re

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402

from reverie.agents.core import EnvironmentCrash, EnvironmentCrashedError, RunSettings  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.agents.dqn.actor import Actor as DqnActor  # noqa: E402
from reverie.agents.step_checks import InvalidStepError  # noqa: E402
from reverie.runners import (  # noqa: E402
    EnvironmentRestarted,
    RoleAwaited,
    Saved,
    StoppedError,
    checkpoints,
    local,
    train,
)
from reverie.runners.reports import evaluation as evaluation_module  # noqa: E402
from reverie.runners.reports.evaluation import Evaluator, confirmation_seeds, screening_seeds  # noqa: E402


class Echo(gymnasium.Env):
    """The seed of an episode is its number of steps; the reward is the action."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = seed
        return np.array([self.left], np.float32), {}

    def step(self, action):
        assert self.left > 0, "stepped after its end"
        self.left -= 1
        return np.array([self.left], np.float32), float(action), self.left == 0 and True, False, {}


gymnasium.register("ReverieEcho-v0", Echo)


@pytest.fixture
def evaluator():
    evaluator = Evaluator("ReverieEcho-v0", num_envs=4)
    yield evaluator
    evaluator.close()


def test_every_episode_is_whole_and_the_policy_sees_only_those_that_still_run(evaluator):
    seen = []

    def policy(observations):
        seen.append(observations[:, 0].tolist())
        return observations[:, 0].astype(np.int64)

    evaluation = evaluator.evaluate(policy, [3, 1, 2])
    assert seen == [[3, 1, 2], [2, 1], [1]]
    assert evaluation.returns == (6.0, 1.0, 3.0)
    assert evaluation.seeds == (3, 1, 2)
    assert evaluation.mean_return == pytest.approx(10 / 3)
    assert evaluation.num_episodes == 3


def test_more_seeds_than_environments_are_played_in_turns(evaluator):
    seen = []

    def policy(observations):
        seen.append(observations[:, 0].tolist())
        return observations[:, 0].astype(np.int64)

    evaluation = evaluator.evaluate(policy, [1, 1, 2, 1, 3, 2])
    assert seen == [[1, 1, 2, 1], [1], [3, 2], [2, 1], [1]]
    assert evaluation.returns == (1.0, 1.0, 3.0, 1.0, 6.0, 3.0)
    assert evaluation.seeds == (1, 1, 2, 1, 3, 2)


def test_an_evaluation_needs_a_seed_and_an_environment_that_it_can_make(evaluator):
    with pytest.raises(ValueError, match="seeds is empty"):
        evaluator.evaluate(lambda observations: np.zeros(len(observations), np.int64), [])
    with pytest.raises(TypeError, match="makes its environments itself: give the id of an environment, or the `spec`"):
        Evaluator(gymnasium.make("CartPole-v1"), 4)
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        Evaluator("CartPole-v1", 0)


def test_an_evaluator_takes_a_class_of_environments_as_a_run_does(evaluator):
    def policy(observations):
        return observations[:, 0].astype(np.int64)

    own = Evaluator(Echo, 2)
    assert own.evaluate(policy, [3, 1, 2]) == evaluator.evaluate(policy, [3, 1, 2])
    own.close()
    with pytest.raises(TypeError, match=r"env: <function .*> is a lambda or defined within a function"):
        Evaluator(lambda: Echo(), 2)


@pytest.mark.parametrize("seeds", [5, None, 2.0, "12"])
def test_seeds_that_are_no_list_are_refused_by_name_with_an_example(evaluator, seeds):
    words = re.escape(f"seeds is {seeds!r}, and must be one seed for each episode, such as range(30_000, 30_010)")
    with pytest.raises(TypeError, match=words):
        evaluator.evaluate(lambda observations: np.zeros(len(observations), np.int64), seeds)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.zeros(1, np.int64), r"policy returned 1 actions for observations \[2, ...\]: return one for each"),
        (np.zeros(3, np.int64), r"policy returned 3 actions for observations \[2, ...\]"),
        (0, r"policy returned 0 for observations \[2, ...\]: return a sequence of actions"),
    ],
)
def test_another_number_of_actions_than_of_observations_is_refused(evaluator, returned, words):
    with pytest.raises(ValueError, match=words):
        evaluator.evaluate(lambda observations: returned, seeds=(3, 4))


def test_a_negative_seed_is_refused_and_not_reported_as_a_crash(evaluator):
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        evaluator.evaluate(lambda observations: np.zeros(len(observations), np.int64), seeds=(1, -1))


def test_continuous_actions_go_to_the_environment_as_the_policy_gave_them():
    evaluator = Evaluator("Pendulum-v1", 3)
    evaluation = evaluator.evaluate(lambda obs: np.zeros((len(obs), 1), np.float32), [1, 2, 3])
    evaluator.close()
    env = gymnasium.make("Pendulum-v1")
    for seed, expected in zip(evaluation.seeds, evaluation.returns, strict=True):
        env.reset(seed=seed)
        assert sum(float(env.step(np.zeros(1, np.float32))[1]) for _ in range(200)) == expected


def test_the_same_seeds_give_the_same_episodes():
    evaluator = Evaluator("CartPole-v1", 10)
    one, two = (evaluator.evaluate(lambda obs: (obs[:, 2] > 0).astype(np.int64), screening_seeds(10)) for _ in range(2))
    assert one == two
    evaluator.close()


def test_confirmation_is_on_seeds_that_screening_never_uses():
    for episodes in (20, 100):
        assert len(set(confirmation_seeds(episodes))) == episodes
        assert not set(confirmation_seeds(episodes)) & set(screening_seeds(episodes))


class Reached(gymnasium.Env):
    """An episode of the seed n has n steps (4 or 5 from 100 on); its last info reports a success if n is even."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, key="is_success"):
        self.key = key

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        number = 3 if seed is None else seed
        self.seed, self.steps = number if number < 100 else 4 + number % 2, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.seed
        info = {self.key: over and self.seed % 2 == 0} if self.key and (self.key != "last" or self.seed == 2) else {}
        return np.zeros(2, np.float32), 1.0, over, False, info


gymnasium.register("ReverieReached-v0", Reached)


def reached_vector(num_envs, mode="next_step"):
    return SyncVectorEnv([Reached] * num_envs, autoreset_mode=next(one for one in AutoresetMode if one.name == mode))


@pytest.mark.parametrize(
    "env_id",
    [
        "ReverieReached-v0",
        "ReverieReached-v0(key='success')",
        *(f"{__name__}:reached_vector(mode={mode.name!r})" for mode in AutoresetMode),
    ],
)
def test_an_evaluation_has_the_length_and_the_success_of_each_episode(env_id):
    evaluator = Evaluator(env_id, 2)
    evaluation = evaluator.evaluate(lambda obs: np.zeros(len(obs), np.int64), (5, 2, 3, 4, 4))
    evaluator.close()
    assert evaluation.lengths == (5, 2, 3, 4, 4)
    assert evaluation.successes == (False, True, False, True, True)
    assert evaluation.success_rate == 0.6


@pytest.mark.parametrize("key", ["", "last", "reached"])
def test_an_environment_that_reports_no_success_has_no_rate(key):
    evaluator = Evaluator(f"ReverieReached-v0(key={key!r})", 2)
    evaluation = evaluator.evaluate(lambda obs: np.zeros(len(obs), np.int64), (5, 2))
    evaluator.close()
    assert (evaluation.successes, evaluation.success_rate) == (None, None)


def shared_vector(num_envs):
    """A vector that reports one share for all of its environments, as some libraries do."""

    class Shared(SyncVectorEnv):
        def step(self, actions):
            *stepped, info = super().step(actions)
            return *stepped, {**info, "is_success": 1.0}

    return Shared([Reached] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def test_a_vector_with_one_success_for_all_environments_is_played_and_has_no_rate():
    evaluator = Evaluator(f"{__name__}:shared_vector", 2)
    evaluation = evaluator.evaluate(lambda obs: np.zeros(len(obs), np.int64), (5, 2))
    evaluator.close()
    assert (evaluation.lengths, evaluation.successes) == ((5, 2), None)


@pytest.mark.parametrize(
    ("value", "success"),
    [(True, True), (np.bool_(False), False), (1, True), (0.0, False), ([True, False], False), ([1, 1], True)]
    + [(value, None) for value in (0.3, float("nan"), 2, "yes", [], None)],
)
def test_a_success_is_a_truth_value_or_0_or_1(value, success):
    assert evaluation_module._success({"is_success": value}) is success


@pytest.mark.parametrize("env_id", ["ReverieReached-v0", "CartPole-v1"])
def test_a_run_reports_its_success_rates_and_keeps_them(env_id, tmp_path):
    from reverie.runners import Evaluated, Started, train
    from reverie.runners.reports import logs

    events = []
    settings = {"learning_starts": 20, "evaluate_every": 20, "screening_episodes": 2, "confirmation_episodes": 2}
    run = {**settings, "target_return": None, "compile": "off", "folder": tmp_path, "on_event": events.append}
    first = train("dqn", env_id, max_env_steps=40, **run)
    points = [event.point for event in events if isinstance(event, Evaluated)]
    wanted = 0.5 if env_id == "ReverieReached-v0" else None
    assert {point.success_rate for point in points} == {wanted}
    assert first.evaluation.success_rate == wanted
    again = train("dqn", env_id, max_env_steps=40, resume="must", **run)
    assert (again.evaluation, again.curve) == (first.evaluation, first.curve)
    longer = train("dqn", env_id, max_env_steps=80, resume="must", **run)
    assert longer.curve[: len(points)] == tuple(points)
    resumed = [event for event in events if isinstance(event, Started)][-1]
    assert resumed.curve == tuple(points)
    lines = [json.loads(line) for line in (tmp_path / logs.LOG).read_text().splitlines()]
    assert {line["success_rate"] for line in lines if line["event"] in ("evaluated", "finished")} == {wanted}


class Fragile(gymnasium.Env):
    """Ends after three steps; raises in the steps of all environments that are named."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps, raises_in, seeds_that_raise = 0, frozenset(), []

    def reset(self, *, seed=None, options=None):
        if seed in Fragile.seeds_that_raise:
            Fragile.seeds_that_raise.remove(seed)
            raise RuntimeError("the simulator does not begin")
        self.left = 3
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Fragile.steps += 1
        if Fragile.steps in Fragile.raises_in:
            raise RuntimeError("the simulator broke")
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}


gymnasium.register("ReverieFragile-v0", Fragile)


def test_an_environment_that_raises_is_reported_with_seed_and_step_and_the_next_evaluation_is_complete(monkeypatch):
    monkeypatch.setattr(Fragile, "steps", 0)
    monkeypatch.setattr(Fragile, "raises_in", {4})
    evaluator = Evaluator("ReverieFragile-v0", 2)
    play = lambda: evaluator.evaluate(lambda obs: np.zeros(len(obs), np.int64), (7, 8))  # noqa: E731
    with pytest.raises(EnvironmentCrashedError, match="raised at step 2 from seed 8: RuntimeError: the simulator") as e:
        play()
    crash = e.value.crash
    assert crash == EnvironmentCrash("ReverieFragile-v0", 8, 2, crash.error)
    assert re.fullmatch(rf"RuntimeError: the simulator broke \({re.escape(__file__)}, line \d+\)", crash.error)
    assert play().returns == (3.0, 3.0)


def test_an_environment_that_raises_at_its_reset_is_reported_with_its_seed(monkeypatch):
    monkeypatch.setattr(Fragile, "seeds_that_raise", [8])
    evaluator = Evaluator("ReverieFragile-v0", 2)
    play = lambda: evaluator.evaluate(lambda obs: np.zeros(len(obs), np.int64), (7, 8))  # noqa: E731
    with pytest.raises(EnvironmentCrashedError, match="raised at step 0 from seed 8: RuntimeError: the simulator does"):
        play()
    assert play().returns == (3.0, 3.0)


class NotFinite(gymnasium.Env):
    """Ends after three steps; has a number of the test in the observation or the reward of one of them."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, where="reward", at=2, number="nan", of_seed=8):
        self._where, self._at, self._number, self._of_seed = where, at, float(number), of_seed

    def reset(self, *, seed=None, options=None):
        self._steps, self._wrong = 0, seed == self._of_seed
        return self._observed(), {}

    def step(self, action):
        self._steps += 1
        reward = self._number if self._now("reward") else 1.0
        return self._observed(), reward, self._steps == 3, False, {}

    def _observed(self):
        return np.array([0.0, self._number if self._now("observation") else 0.0], np.float32)

    def _now(self, where):
        return self._wrong and (where, self._steps) == (self._where, self._at)


gymnasium.register("ReverieNotFinite-v0", NotFinite)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    ("where", "step"), [("reward", 1), ("reward", 3), ("observation", 0), ("observation", 2), ("observation", 3)]
)
def test_an_evaluation_ends_at_a_number_that_is_not_finite_and_names_seed_and_step(where, step, number):
    evaluator = Evaluator(f"ReverieNotFinite-v0(where={where!r}, at={step}, number={number!r})", 3)
    play = lambda seeds: evaluator.evaluate(lambda obs: np.zeros(len(obs), np.int64), seeds)  # noqa: E731
    what = "a reward of" if where == "reward" else "an observation with"
    with pytest.raises(InvalidStepError, match=f"returned {what} {number} at step {step} from seed 8: agents need"):
        play((6, 7, 8, 9))
    assert play((6, 7, 9)).returns == (3.0, 3.0, 3.0)


def test_a_run_ends_at_an_evaluation_with_a_number_that_is_not_finite_and_does_not_repeat_it():
    first, events = screening_seeds(1)[0], []
    of_the_run = {"max_env_steps": 60, "learning_starts": 20, "evaluate_every": 20, "screening_episodes": 1}
    own = {"evaluation_env": f"ReverieNotFinite-v0(of_seed={first})"}
    with pytest.raises(InvalidStepError, match=f"a reward of nan at step 2 from seed {first}"):
        train("dqn", "ReverieNotFinite-v0(of_seed=-1)", on_event=events.append, **of_the_run, **own)
    assert not any(isinstance(event, EnvironmentRestarted) for event in events)


@pytest.mark.parametrize(
    ("steps", "ends"), [([5], False), ([5, 6, 5, 6], False), ([5, 6, 5, 6, 5], True), ([5, 5], True)]
)
def test_a_run_in_one_process_retries_a_crashed_evaluation_until_it_repeats(monkeypatch, tmp_path, steps, ends):
    evaluate, events = Evaluator.evaluate, []
    crashes = [
        EnvironmentCrash("CartPole-v1", 10_000, one, f"RuntimeError: broke ({i})") for i, one in enumerate(steps)
    ]
    failing = list(crashes)

    def breaking(self, *arguments):
        if failing:
            raise EnvironmentCrashedError(failing.pop(0), 1)
        return evaluate(self, *arguments)

    monkeypatch.setattr(Evaluator, "evaluate", breaking)
    run = RunSettings(10_000.0, 100, 100, screening_episodes=1, confirmation_episodes=1)
    options = {"run": run, "on_event": events.append, "folder": tmp_path}
    if ends:
        with pytest.raises(EnvironmentCrashedError):
            train(dqn, "CartPole-v1", **options)
        assert [type(event) for event in events[-2:]] == [EnvironmentRestarted, Saved]
        assert not failing
    # A run that has ended so continues with the evaluation, when the environment is mended.
    assert train(dqn, "CartPole-v1", **options, resume=True).evaluation.num_episodes == 1
    assert [event.crash for event in events if isinstance(event, EnvironmentRestarted)] == crashes


def test_a_run_that_environments_end_while_acting_saves_a_checkpoint_first(monkeypatch, tmp_path):
    events, act = [], DqnActor.act

    def breaking(self):
        if self.state_dict()["env_steps"] >= 60:
            raise EnvironmentCrashedError(EnvironmentCrash("CartPole-v1", 1, 5, "RuntimeError: broke"), 5)
        return act(self)

    monkeypatch.setattr(DqnActor, "act", breaking)
    run = RunSettings(10_000.0, 100, 100, screening_episodes=1, confirmation_episodes=1)
    options = {"run": run, "on_event": events.append, "folder": tmp_path}
    with pytest.raises(EnvironmentCrashedError):
        train(dqn, "CartPole-v1", **options)
    assert isinstance(events[-1], Saved)
    assert 60 <= events[-1].env_steps < 100


class Endless(Fragile):
    """Has no end; raises where a test would hang."""

    taken = 0

    def step(self, action):
        Endless.taken += 1
        if Endless.taken > 10_000:
            raise RuntimeError("no stop came")
        return np.zeros(2, np.float32), 1.0, False, False, {}


gymnasium.register("ReverieEndless-v0", Endless)


class Clock:
    """Seconds, one more at each reading."""

    def __init__(self):
        self.seconds = 0.0

    def perf_counter(self):
        self.seconds += 1.0
        return self.seconds


def test_an_evaluation_without_an_end_is_reported_once_and_ends_when_a_stop_is_requested(monkeypatch, tmp_path):
    events, asked = [], []
    monkeypatch.setattr(local, "time", Clock())
    config = dataclasses.replace(dqn.load_preset("CartPole-v1").config, learning_starts=10_000)
    run = RunSettings(None, 300, 100, screening_episodes=1, confirmation_episodes=1, evaluation_seconds=20.0)
    options = {"run": run, "config": config, "on_event": events.append, "folder": tmp_path}

    def should_stop():
        warned = any(isinstance(event, RoleAwaited) for event in events)
        asked.append(warned)
        return asked.count(True) > 20

    with pytest.raises(StoppedError) as stopped:
        train(dqn, "ReverieEndless-v0", should_stop=should_stop, **options)
    (warning,) = [event for event in events if isinstance(event, RoleAwaited)]
    assert warning.role == "evaluator"
    assert warning.reason == "has not finished an evaluation; if its episodes have no end, set time_limit"
    assert 20 < warning.seconds < 25
    state = checkpoints.load(stopped.value.checkpoint)
    assert state["next_evaluation"] == 100, "the evaluation that was ended is due again"
    assert state["env_steps"] >= 100


def test_a_stop_in_the_last_evaluation_saves_a_run_that_continues_with_it(monkeypatch, tmp_path):
    evaluations, evaluate = [], Evaluator.evaluate

    def counted(self, *arguments):
        evaluations.append(arguments)
        return evaluate(self, *arguments)

    monkeypatch.setattr(Evaluator, "evaluate", counted)
    run = RunSettings(10_000.0, 100, 100, screening_episodes=1, confirmation_episodes=1)
    options = {"run": run, "folder": tmp_path}
    with pytest.raises(StoppedError) as stopped:
        train(dqn, "CartPole-v1", should_stop=lambda: len(evaluations) == 2, **options)
    assert stopped.value.env_steps >= 100
    result = train(dqn, "CartPole-v1", resume=True, **options)
    assert (len(evaluations), len(result.curve)) == (3, 1)
    assert result.env_steps == stopped.value.env_steps
