"""The rules of Mnih et al. 2015: those that ale-py keeps on the real games, ours on games that a script decides."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")
vector_env = pytest.importorskip("ale_py.vector_env")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import atari  # noqa: E402
from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.atari import FrameStacks, GameVector, make_envs  # noqa: E402
from reverie.agents.core import RunSettings, Stopwatch  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import (  # noqa: E402
    UnknownEnvironmentError,
    UnsupportedEnvironmentError,
    describe,
    make_one,
    make_vector,
)
from reverie.runners import Evaluator, train  # noqa: E402

PONG = "ALE/Pong-v5"
NO_OP = np.zeros(1, np.int64)


@pytest.mark.long
def test_every_step_is_four_grey_84_by_84_frames_whatever_the_frame_skip_of_the_id():
    for env_id in (PONG, "PongNoFrameskip-v4"):
        envs = make_envs(env_id, 1)
        frames, info = envs.reset(seed=0)
        before = int(info["episode_frame_number"][0])
        for step in range(1, 4):
            frames, _, _, _, info = envs.step(NO_OP)
            assert info["episode_frame_number"][0] == before + 4 * step
        assert (frames.shape, frames.dtype) == ((1, 1, 84, 84), np.uint8)


@pytest.mark.long
def test_an_episode_begins_after_up_to_30_frames_of_no_action():
    # One game, again and again: a vector of so many takes longer to make than to reset.
    games = make_envs(PONG, 1)
    waited = [int(games.reset(seed=seed)[1]["episode_frame_number"][0]) for seed in range(24)]
    assert 0 <= min(waited) < 8
    assert 22 < max(waited) <= 30
    assert len(set(waited)) > 12


@pytest.mark.long
def test_a_frame_is_the_maximum_of_the_last_two():
    ours = make_envs("PongNoFrameskip-v4", 1)
    options = {"stack_num": 1, "num_threads": 1, "noop_max": 30, "use_fire_reset": False, "autoreset_mode": "SameStep"}
    last_alone = vector_env.AtariVectorEnv("pong", 1, maxpool=False, **options)
    ours.reset(seed=0)
    last_alone.reset(seed=0)
    brighter = 0
    for _ in range(60):
        frame, single = ours.step(NO_OP)[0].astype(int), last_alone.step(NO_OP)[0].astype(int)
        assert (frame >= single - 1).all()  # scaling rounds
        brighter += int((frame > single + 20).sum())
    assert brighter > 20  # the ball, where it was a frame before


@pytest.mark.long
def test_an_episode_is_cut_off_after_108000_frames(monkeypatch):
    assert atari.FRAMES_PER_EPISODE == 108_000
    monkeypatch.setattr(atari, "FRAMES_PER_EPISODE", 200)
    games = make_vector(PONG, 1, newest_frames=True)
    games.reset(seed=0)
    ends = [games.step(NO_OP)[2:4] for _ in range(60)]
    truncated = [bool(end[1][0]) for end in ends]
    # Frames of no action at the beginning count: 30 at most.
    assert (200 - 30) // 4 <= truncated.index(True) + 1 <= 200 // 4
    assert not any(end[0][0] for end in ends)


def test_the_id_decides_whether_actions_stick_and_which_there_are(monkeypatch):
    asked = []
    monkeypatch.setattr(vector_env, "AtariVectorEnv", lambda game, num_envs, **options: asked.append((game, options)))
    for env_id in (PONG, "PongNoFrameskip-v4", "PongNoFrameskip-v0"):
        make_envs(env_id, 3)
    assert [game for game, _ in asked] == ["pong"] * 3
    assert [options["repeat_action_probability"] for _, options in asked] == [0.25, 0.0, 0.25]
    assert {options["full_action_space"] for _, options in asked} == {False}


def test_an_unknown_game_names_the_nearest():
    with pytest.raises(UnknownEnvironmentError, match=r"no environment 'ALE/Pongg-v5'.*ALE/Pong-v5"):
        describe("ALE/Pongg-v5")


def test_an_agent_whose_networks_read_vectors_only_refuses_games():
    from reverie.agents.ppo import agent as ppo

    own = dataclasses.replace(ppo, any_space=False, name="mine")
    with pytest.raises(
        UnsupportedEnvironmentError, match=r"observation \(image of shape \(84, 84\)\): mine takes vectors"
    ):
        own.check(describe(PONG))


@pytest.mark.long
def test_agents_of_unrolls_play_games_by_stacks_of_frames(tmp_path):
    from reverie.agents.ppo import agent as ppo
    from reverie.runners import train

    preset = ppo.load_preset(PONG)
    config = dataclasses.replace(preset.config, num_actors=1, envs_per_actor=2, unroll_length=4, hidden=(8,))
    ends = {"max_env_steps": 16, "evaluate_every": 16, "screening_episodes": 1, "confirmation_episodes": 1}
    run = dataclasses.replace(preset.run, target_return=None, **ends)
    made = EnvSettings(time_limit=10)
    result = train(ppo, PONG, config=config, run=run, environment=made, folder=tmp_path)
    assert result.learner["updates"] > 0
    assert result.topology.env.obs_shape == (4, 84, 84)
    assert reverie.load_policy(tmp_path)(np.zeros((3, 4, 84, 84), np.uint8)).shape == (3,)


LIVES, LENGTH = 3, 14


class ScriptedGames:
    """Games of 14 steps that lose a life after every fifth; even games are cut off, odd ones end. SAME_STEP autoreset.

    A frame has one value: `100 * game + step`, modulo 251. Step k earns k - 7 points.
    """

    single_action_space = make_envs(PONG, 1).single_action_space

    def __init__(self, num_envs):
        self.game, self.step_index = np.arange(num_envs), np.zeros(num_envs, int)

    def frames(self):
        values = ((100 * self.game + self.step_index) % 251).astype(np.uint8)
        return np.broadcast_to(values[:, None, None, None], (len(values), 1, 84, 84)).copy()

    def info(self):
        return {"lives": LIVES - self.step_index // 5}

    def reset(self, *, seed):
        return self.frames(), self.info()

    def step(self, actions):
        self.step_index += 1
        reward, over = self.step_index - 7, self.step_index == LENGTH
        final, odd = self.frames(), self.game % 2 == 1
        self.step_index[over] = 0
        self.game = self.game + 2 * over
        terminated, truncated = over & odd, over & ~odd
        info = self.info()
        if over.any():
            info["final_obs"] = final
        return self.frames(), reward, terminated, truncated, info


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(atari, "make_envs", lambda env_id, num_envs, settings: ScriptedGames(num_envs))
    return dataclasses.replace(describe(PONG))


def episodes(game, steps):
    """Frame values and rewards of the training episodes of one scripted environment, and how each ended."""
    done = 0
    while done < steps:
        for start, stop in ((0, 5), (5, 10), (10, LENGTH)):
            values = [(100 * game + k) % 251 for k in range(start, stop + 1)]
            rewards = [float(np.clip(k - 7, -1, 1)) for k in range(start + 1, stop + 1)]
            yield values, rewards, stop == LENGTH and game % 2 == 0
            done += stop - start
        game += 2


def expected_items(game, steps, n, gamma):
    """`(obs stack, next stack, reward, discount)` of every item, by brute force over whole episodes."""
    found = []
    for values, rewards, truncated in episodes(game, steps):
        stack = [tuple(values[max(0, k - j)] for j in (3, 2, 1, 0)) for k in range(len(values))]
        for k in range(len(rewards)):
            m = min(n, len(rewards) - k)
            reward = sum(gamma**j * rewards[k + j] for j in range(m))
            discount = 0.0 if k + m == len(rewards) and not truncated else gamma**m
            found.append((stack[k], stack[k + m], round(reward, 4), round(discount, 4)))
    return found


def play(agent, spec, acts, *, sampler=None, **changes):
    config = dataclasses.replace(
        agent.load_preset(PONG).config, num_actors=1, envs_per_actor=2, learning_starts=1, capacity=5_000, **changes
    )
    (table,) = agent.make_tables(spec, config, seed=0)
    table = table.replace(rate_limiter=reverie.rate_limiters.MinSize(1), sampler=sampler or reverie.selectors.Fifo())
    client = reverie.Server([table], listen=False).client()
    options = {"seed": 1, "watch": Stopwatch()}
    learner = agent.make_learner(spec, config, client, **options)
    actor = agent.make_actor(spec, config, client, learner, index=0, **options)
    seen = []
    choose = actor._choose
    actor._choose = lambda obs: seen.append(obs.copy()) or choose(obs)
    steps = sum(actor.act() for _ in range(acts))
    actor.close()
    assert steps == 2 * acts  # no step is a reset
    client.configure("replay", max_times_sampled=1)
    items = client.sample_batch("replay", client.info().tables["replay"].current_size, timeout=0)
    return actor, seen, items


@pytest.mark.long
@pytest.mark.parametrize("agent", [apex_dqn, dqn])
@pytest.mark.parametrize("n_step", [1, 3])
def test_items_are_those_of_a_brute_force_lives_end_episodes_and_rewards_are_bounded(agent, n_step, scripted):
    acts = 3 * LENGTH
    _, _, items = play(agent, scripted, acts, n_step=n_step, discount=0.9)
    data = items.data
    assert data["obs"].shape[1:] == (4, 84, 84)
    assert (data["obs"] == data["obs"][:, :, :1, :1]).all()
    found = sorted(
        (tuple(obs), tuple(after), round(float(reward), 4), round(float(discount), 4))
        for obs, after, reward, discount in zip(
            data["obs"][:, :, 0, 0].tolist(),
            data["next_obs"][:, :, 0, 0].tolist(),
            data["reward"],
            data["discount"],
            strict=True,
        )
    )
    assert found == sorted(item for game in (0, 1) for item in expected_items(game, acts, n_step, 0.9))


def discounted(rewards, discount):
    """The discounted sums of rewards so far, from each episode's first step on."""
    sums = [0.0]
    for reward in rewards:
        sums.append(discount * sums[-1] + reward)
    return sums[1:]


def test_the_returns_that_normalise_rewards_begin_again_where_a_life_is_lost(scripted):
    normalised = dataclasses.replace(scripted, settings=dataclasses.replace(scripted.settings, normalise_rewards=True))
    acts = 3 * LENGTH
    _, _, items = play(dqn, normalised, acts, n_step=1, discount=0.9)
    found = sorted(
        (int(obs), round(float(total), 4))
        for obs, total in zip(items.data["obs"][:, -1, 0, 0], items.data["discounted_return"], strict=True)
    )
    assert found == sorted(
        (value, round(total, 4))
        for game in (0, 1)
        for values, rewards, _ in episodes(game, acts)
        for value, total in zip(values, discounted(rewards, 0.9), strict=False)
    )


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_unrolls_of_games_end_with_lives_and_have_a_row_of_the_last_stack_where_a_game_is_cut_off(name, scripted):
    agent = agents.find(name)
    length = 3 * LENGTH
    small = {"num_actors": 1, "envs_per_actor": 2, "unroll_length": length, "discount": 0.9, "hidden": (8,)}
    small["lstm_units"] = 4
    batch = {"batch_size": 2} if name == "impala" else {}
    config = dataclasses.replace(agent.load_preset(PONG).config, **small, **batch)
    client = reverie.Server(agent.make_tables(scripted, config, seed=0), listen=False).client()
    options = {"seed": 1, "watch": Stopwatch()}
    learner = agent.make_learner(scripted, config, client, **options)
    actor = agent.make_actor(scripted, config, client, learner, index=0, **options)
    while client.info().tables["unrolls"].num_inserts < 2:
        actor.act()
    data = client.sample_batch("unrolls", 2, timeout=5).data
    returns = actor.drain_returns()
    actor.close()
    assert set(returns) == {float(sum(range(-6, 8)))}, "of whole games"
    for game in (0, 1):
        rows = []
        for values, rewards, truncated in episodes(game, length):
            stack = [tuple(values[max(0, k - j)] for j in (3, 2, 1, 0)) for k in range(len(values))]
            for k, reward in enumerate(rewards):
                last = k + 1 == len(rewards)
                rows.append((stack[k], reward, 0.0 if last and not truncated else 0.9, last, True))
            if truncated:
                rows.append((stack[-1], 0.0, 0.9, False, False))
        obs, reward, discount, ended, is_step = zip(*rows[:length], strict=True)
        assert data["obs"][game, :length, :, 0, 0].tolist() == [list(one) for one in obs]
        assert data["reward"][game].tolist() == list(reward)
        assert data["discount"][game] == pytest.approx(discount)
        assert data["ended"][game].tolist() == list(ended)
        assert data["is_step"][game].tolist() == list(is_step)
        # The state of the LSTM lasts for a whole game, as in an evaluation.
        rows_of_a_game = LENGTH + (game % 2 == 0)
        assert np.flatnonzero(data["first"][game, :length]).tolist() == [*range(0, length, rows_of_a_game)]


def test_an_actor_sees_the_stacks_that_are_stored(scripted):
    _, seen, items = play(apex_dqn, scripted, 2 * LENGTH, n_step=1)
    acted_on = sorted(tuple(obs[:, 0, 0].tolist()) for both in seen for obs in both)
    assert acted_on == sorted(tuple(obs) for obs in items.data["obs"][:, :, 0, 0].tolist())


def test_returns_are_of_whole_games_in_their_own_points(scripted):
    actor, _, _ = play(apex_dqn, scripted, 2 * LENGTH)
    assert actor.drain_returns() == [float(sum(range(-6, 8)))] * 4


def test_first_priorities_at_a_truncation_use_the_value_of_the_last_stack(scripted):
    actor, _, items = play(apex_dqn, scripted, LENGTH, n_step=1, discount=0.9, priority_eps=0.0)
    q = actor._policy.q_values(np.ascontiguousarray(items.data["obs"]))
    value = actor._policy.q_values(np.ascontiguousarray(items.data["next_obs"])).max(axis=1)
    taken = q[np.arange(len(q)), items.data["action"]]
    errors = np.abs(items.data["reward"] + items.data["discount"] * value - taken)
    assert np.allclose(items.info.priority, errors, atol=1e-4)
    last = items.data["next_obs"][:, 3, 0, 0] == LENGTH  # of game 0, which is cut off
    assert last.sum() == 1
    assert items.data["discount"][last][0] == pytest.approx(0.9)


def test_an_evaluation_plays_whole_games_in_their_own_points(scripted):
    evaluator = Evaluator(PONG, 2)
    shapes = []
    evaluation = evaluator.evaluate(lambda obs: shapes.append(obs.shape) or np.zeros(len(obs), np.int64), (5, 6))
    assert evaluation.returns == (float(sum(range(-6, 8))),) * 2
    assert len(shapes) == LENGTH
    assert set(shapes) == {(2, 4, 84, 84)}
    assert make_one(PONG).reset(seed=3)[0].shape == (4, 84, 84)


def test_stacks_repeat_the_first_frame_and_drop_the_oldest():
    stacks = FrameStacks(2, (3, 1, 1))
    frame = lambda *values: np.array(values, np.uint8).reshape(2, 1, 1)  # noqa: E731
    assert stacks.begin(frame(1, 5)).reshape(2, 3).tolist() == [[1, 1, 1], [5, 5, 5]]
    assert stacks.step(frame(2, 6), np.array([False, False])).reshape(2, 3).tolist() == [[1, 1, 2], [5, 5, 6]]
    assert stacks.after(frame(3, 7), np.array([False, True])).reshape(1, 3).tolist() == [[5, 6, 7]]
    assert stacks.step(frame(3, 9), np.array([False, True])).reshape(2, 3).tolist() == [[1, 2, 3], [9, 9, 9]]


@pytest.mark.long
def test_a_seed_gives_its_games_and_frames_are_not_written_to_again():
    one, two, other = (GameVector(PONG, 2) for _ in range(3))
    first = [games.reset(seed=seed)[0] for games, seed in ((one, 3), (two, 3), (other, 40))]
    kept = first[0].copy()
    for _ in range(12):
        frames = [games.step(np.array([2, 3]))[0] for games in (one, two, other)]
    assert (frames[0] == frames[1]).all()
    assert (frames[0] != frames[2]).any()
    assert (first[0] == kept).all()


@pytest.mark.long
@pytest.mark.parametrize(("compression", "limit"), [("none", 7_500), ("auto", 1_500)])
def test_a_step_of_pong_takes_one_frame_of_the_table(compression, limit):
    config = dataclasses.replace(apex_dqn.load_preset(PONG).config, learning_starts=1, weights_period=10_000)
    (table,) = apex_dqn.make_tables(describe(PONG), config, seed=0)
    table = table.replace(compression=compression, rate_limiter=reverie.rate_limiters.MinSize(1))
    client = reverie.Server([table], listen=False).client()
    actor = apex_dqn.make_actor(describe(PONG), config, client, Never(), index=0, seed=0, watch=Stopwatch())
    actor._policy.q_values = lambda obs: np.zeros((len(obs), 6), np.float32)
    actor.epsilons = np.ones(8)
    while actor.env_steps < 1_000:
        actor.act()
    actor.close()
    info = client.info().tables["replay"]
    assert info.size_bytes / info.num_inserts < limit


class Never:
    def latest(self, newer_than):
        return None


@pytest.mark.long
def test_some_steps_of_pong_learn_and_end(monkeypatch):
    monkeypatch.setattr(atari, "FRAMES_PER_EPISODE", 80)
    preset = apex_dqn.load_preset(PONG)
    sizes = {"learning_starts": 60, "batch_size": 8, "samples_per_insert": 4.0}
    config = dataclasses.replace(preset.config, capacity=2_000, **sizes)
    run = RunSettings(
        target_return=19.0, max_env_steps=150, evaluate_every=150, screening_episodes=2, confirmation_episodes=2
    )
    result = train(apex_dqn, PONG, config=config, run=run)
    assert result.env_steps >= 150
    assert result.learner["updates"] > 30
    assert result.replay["priorities_updated"] > 0
    assert not result.confirmed
