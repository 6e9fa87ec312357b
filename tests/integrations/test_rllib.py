"""The buffer for RLlib: what it samples from episodes, and short trainings of RLlib's DQN and SAC."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

pytest.importorskip("ray.rllib", reason="RLlib's packages are not installed")

import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

import reverie
from reverie.integrations.rllib import AddSamples, PrioritizedEpisodeReplayBuffer, SACConfig

ROOT = Path(__file__).resolve().parents[2]
KIND = "reverie.integrations.rllib.PrioritizedEpisodeReplayBuffer"


def parts(lengths, start=0, end="terminated"):
    """The parts of one episode: its observations are numbers from `start` on, and rewards the powers of two."""
    episode = SingleAgentEpisode(id_=f"episode-{start}")
    episode.add_env_reset(np.array([start], np.float32))
    step, found = 0, []
    for length in lengths:
        for _ in range(length):
            last = step == sum(lengths) - 1
            episode.add_env_step(
                np.array([start + step + 1], np.float32),
                step % 4,
                float(2**step),
                terminated=last and end == "terminated",
                truncated=last and end == "truncated",
            )
            step += 1
        found.append(episode)
        if not episode.is_done:
            episode = episode.cut(len_lookback_buffer=1)
    return found


def rows(buffer, gamma=1.0, **options):
    """The transitions of a buffer: observation, action, return, next observation, terminated and the steps."""
    return {
        (
            float(episode.get_observations(0)[0]),
            int(episode.get_actions(0)),
            float(episode.get_rewards(0)),
            float(episode.get_observations(1)[0]),
            episode.is_terminated,
            episode.get_extra_model_outputs("n_step", 0),
        )
        for episode in buffer.sample(2000, gamma=gamma, **options)
    }


@pytest.mark.parametrize("end", ["terminated", "truncated", "open"])
@pytest.mark.parametrize("lengths", [[5], [2, 1, 2]])
@pytest.mark.parametrize("arrays", [False, True])
def test_transitions_of_parts_are_those_of_the_whole_episode(lengths, end, arrays):
    buffer = PrioritizedEpisodeReplayBuffer(100, seed=1)
    for part in parts(lengths, end=end):
        buffer.add([part.to_numpy() if arrays else part])
    wanted = {(float(t), t % 4, float(2**t), t + 1.0, end == "terminated" and t == 4, 1) for t in range(5)}
    assert rows(buffer) == wanted
    assert (len(buffer), buffer.get_added_timesteps()) == (5, 5)
    # Each observation is stored once: six cells of an observation, an action, a reward and an end.
    assert buffer.client.server_info()["replay"].num_episodes == 1


def test_returns_of_n_steps_are_shorter_at_the_end_of_an_episode():
    buffer = PrioritizedEpisodeReplayBuffer(100, n_step=3, seed=1)
    first, second = parts([2, 3])
    buffer.add(first)
    assert len(buffer) == 0
    buffer.add(second)
    powers = [1, 2, 4, 8, 16]
    wanted = set()
    for t in range(5):
        count = min(3, 5 - t)
        value = sum(0.5**i * powers[t + i] for i in range(count))
        wanted.add((float(t), t % 4, value, float(t + count), t + count == 5, count))
    assert rows(buffer, gamma=0.5, n_step=3) == wanted


def test_interleaved_episodes_do_not_mix():
    buffer = PrioritizedEpisodeReplayBuffer(100, n_step=2, seed=1)
    for one, other in zip(parts([2, 2]), parts([2, 2], start=10), strict=True):
        buffer.add([one, other])
    assert {(row[0] // 10, row[3] // 10) for row in rows(buffer)} == {(0.0, 0.0), (1.0, 1.0)}
    assert len(buffer) == 8


@pytest.mark.parametrize("arrays", [False, True])
def test_dict_observations_are_sampled_as_they_were_added(arrays):
    episode = SingleAgentEpisode()
    episode.add_env_reset({"image": np.zeros((2, 2), np.uint8), "place": 0})
    for step in range(1, 4):
        episode.add_env_step({"image": np.full((2, 2), step, np.uint8), "place": step}, 0, 1.0)
    buffer = PrioritizedEpisodeReplayBuffer(10)
    buffer.add(episode.to_numpy() if arrays else episode)
    for sample in buffer.sample(20):
        now, after = sample.get_observations(0), sample.get_observations(1)
        assert now["image"].dtype == np.uint8
        assert (now["image"] == now["place"]).all()
        assert after["place"] == now["place"] + 1


def test_draws_follow_the_priorities_and_weights_undo_them():
    buffer = PrioritizedEpisodeReplayBuffer(100, alpha=1.0, beta=1.0, seed=3)
    buffer.add(parts([4], end="open"))
    episodes = buffer.sample(64)
    errors = np.array([float(episode.get_observations(0)[0]) + 1.0 for episode in episodes])
    buffer.update_priorities(-errors)
    samples = buffer.sample(4_000)
    places = np.array([int(episode.get_observations(0)[0]) for episode in samples])
    counts, priorities = np.bincount(places, minlength=4), np.arange(1.0, 5.0)
    assert chi_square(counts, priorities) < LIMIT
    assert chi_square(counts, priorities[::-1]) > LIMIT  # The twin: other priorities.
    weights = np.array([episode.get_extra_model_outputs("weights", 0) for episode in samples])
    np.testing.assert_allclose(weights, 1 / (places + 1.0), rtol=1e-6)
    buffer.update_priorities(np.zeros(4_000))
    buffer.add(parts([1], start=50))
    assert buffer.client.query("replay").priority.tolist()[-1] == 1e-12


#: Chi-square of three degrees of freedom: a probability of about 1e-6.
LIMIT = 30.7


def chi_square(counts, weights):
    expected = counts.sum() * weights / weights.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_a_saved_buffer_goes_on(tmp_path):
    buffer = PrioritizedEpisodeReplayBuffer(100, n_step=2, seed=1)
    buffer.add(parts([5]))
    again = PrioritizedEpisodeReplayBuffer(100, n_step=2, seed=1)
    again.set_state(pickle.loads(pickle.dumps(buffer.get_state())))
    assert rows(again) == rows(buffer)
    assert again.get_added_timesteps() == 5
    again.add(parts([3], start=20))
    assert len(again) == 8


def test_what_cannot_be_done_is_refused_by_name():
    with pytest.raises(ValueError, match="n_step must be one number"):
        PrioritizedEpisodeReplayBuffer(n_step=(1, 3))
    with pytest.raises(ValueError, match='"env_runners" needs server='):
        PrioritizedEpisodeReplayBuffer(added_by="env_runners")
    with pytest.raises(ValueError, match="added_by must be"):
        PrioritizedEpisodeReplayBuffer(added_by="actors")
    with pytest.raises(ValueError, match="beta must be"):
        PrioritizedEpisodeReplayBuffer(beta=2.0)
    buffer = PrioritizedEpisodeReplayBuffer(10)
    with pytest.raises(ValueError, match="has no complete transition yet"):
        buffer.sample(4)
    with pytest.raises(ValueError, match="weight must be None"):
        buffer.add(parts([2]), weight=0.5)
    with pytest.raises(TypeError, match="takes SingleAgentEpisodes, got a int"):
        buffer.add([3])
    buffer.add(parts([2]))
    with pytest.raises(ValueError, match="the algorithm's n_step is 3, and the buffer's 1"):
        buffer.sample(4, n_step=3)
    for option in ({"batch_length_T": 8}, {"lookback": 1}, {"include_infos": True}):
        with pytest.raises(ValueError, match="is for recurrent modules"):
            buffer.sample(4, **option)
    buffer.sample(4, batch_length_T=0, lookback=0, min_batch_length_T=0, sample_episodes=True)
    with pytest.raises(ValueError, match="3 priorities, and 4 transitions"):
        buffer.update_priorities([1.0, 2.0, 3.0])
    tuples = SingleAgentEpisode()
    tuples.add_env_reset((np.zeros(2), np.zeros(3)))
    tuples.add_env_step((np.zeros(2), np.zeros(3)), 0, 1.0)
    with pytest.raises(TypeError, match="an array or a dict of arrays, and got a tuple"):
        buffer.add(tuples)


def prioritized_table():
    return reverie.Table("replay", reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo(), max_size=1000)


def test_a_server_takes_the_samples_of_several_env_runners():
    with reverie.Server([prioritized_table()]) as server:
        add = AddSamples(server.address, n_step=2)
        runners = [pickle.loads(pickle.dumps(add)) for _ in range(2)]
        for number, runner in enumerate(runners):
            for part in parts([3, 2], start=100 * number):
                runner(env_runner=None, metrics_logger=None, samples=[part])
        learner = PrioritizedEpisodeReplayBuffer(server=server.address, n_step=2, added_by="env_runners")
        learner.add(parts([5], start=900))  # What the algorithm received is not added a second time.
        assert {row[0] for row in rows(learner)} == {*map(float, range(5)), *map(float, range(100, 105))}
        assert (len(learner), learner.get_added_timesteps()) == (10, 5)
        learner.update_priorities(np.ones(2000))
        again = PrioritizedEpisodeReplayBuffer(server=server.address, n_step=2)
        again.set_state(learner.get_state())
        assert len(again) == 10
        with pytest.raises(ValueError, match="alpha is an option of the table in this process"):
            PrioritizedEpisodeReplayBuffer(server=server.address, alpha=0.5)


def test_a_server_without_priorities_is_refused():
    uniform = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=10)
    with reverie.Server([uniform]) as server:
        with pytest.raises(ValueError, match="needs a table with sampler"):
            PrioritizedEpisodeReplayBuffer(server=server.address)
        with pytest.raises(ValueError, match="needs a table with sampler"):
            AddSamples(server.address)(samples=[])


def dqn(**buffer):
    from ray.rllib.algorithms.dqn import DQNConfig

    return (
        DQNConfig()
        .environment("CartPole-v1")
        .training(
            n_step=2,
            train_batch_size_per_learner=16,
            num_steps_sampled_before_learning_starts=50,
            replay_buffer_config={"type": KIND, "n_step": 2, "beta": 0.5, **buffer},
        )
        .reporting(min_sample_timesteps_per_iteration=120, min_time_s_per_iteration=0)
        .debugging(seed=1)
    )


def updates(result):
    return result["learners"]["default_policy"]["num_module_steps_trained_lifetime"]


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_dqn_and_sac_of_rllib_train(ray_head):
    algorithm = dqn(capacity=100).env_runners(num_env_runners=0).build_algo()
    assert updates(algorithm.train()) > 200
    buffer = algorithm.local_replay_buffer
    assert isinstance(buffer, PrioritizedEpisodeReplayBuffer)
    assert len(buffer) == 100
    found = buffer.client.query("replay")
    assert len(np.unique(found.priority[found.version > 0])) > 20
    algorithm.stop()

    config = (
        SACConfig()
        .environment("Pendulum-v1")
        .env_runners(num_env_runners=0)
        .training(
            train_batch_size_per_learner=16,
            num_steps_sampled_before_learning_starts=20,
            replay_buffer_config={"type": KIND, "capacity": 500},
        )
        .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=0)
    )
    algorithm = config.build_algo()
    assert updates(algorithm.train()) > 100
    assert (algorithm.local_replay_buffer.client.query("replay").version > 0).any()
    algorithm.stop()


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_env_runners_of_rllib_fill_a_server_and_dqn_learns_from_it(ray_head):
    with reverie.Server([prioritized_table()]) as server:
        config = (
            dqn(server=server.address, added_by="env_runners")
            .env_runners(num_env_runners=2)
            .callbacks(on_sample_end=AddSamples(server.address, n_step=2))
        )
        algorithm = config.build_algo()
        result = algorithm.train()
        assert updates(result) > 100
        buffer = algorithm.local_replay_buffer
        assert buffer.get_added_timesteps() >= 120
        # All but the newest step of each open episode are transitions by now.
        assert buffer.get_added_timesteps() - 2 <= len(buffer) <= buffer.get_added_timesteps()
        assert (buffer.client.query("replay").version > 0).any()
        algorithm.stop()


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_the_example_trains(ray_head, capsys, monkeypatch):
    import runpy

    example = runpy.run_path(str(ROOT / "examples" / "rllib" / "dqn_on_a_server.py"))
    monkeypatch.setitem(example["main"].__globals__, "ITERATIONS", 1)
    example["main"]()
    transitions, priorities = (int(part.split()[0]) for part in capsys.readouterr().out.split(", ")[:2])
    assert transitions >= 400
    assert priorities >= 32


def test_without_rllib_the_import_names_the_extra(monkeypatch):
    import importlib
    import sys

    for name in [name for name in sys.modules if name.startswith("reverie.integrations")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray.rllib", None)
    monkeypatch.delattr(sys.modules["ray"], "rllib")
    with pytest.raises(ImportError, match=r'pip install "reverie\[rllib\]"'):
        importlib.import_module("reverie.integrations.rllib")


def test_the_configurations_of_the_guide_are_those_that_rllib_accepts():
    page = (ROOT / "docs" / "guides" / "use-with-rllib.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    names = {}
    found = []
    for block in blocks:
        exec(block, names)
        names["config"].validate()
        found.append(names["config"].replay_buffer_config)
    assert [one["n_step"] for one in found] == [3, 3]
    assert found[1]["server"] == "replay.example:8000"
