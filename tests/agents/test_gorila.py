import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie.agents.core import RunSettings, Stopwatch  # noqa: E402
from reverie.agents.dqn import agent as dqn  # noqa: E402
from reverie.agents.dqn.config import DqnConfig  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.gorila import agent as gorila  # noqa: E402
from reverie.agents.gorila.learner import make_parameter_server  # noqa: E402
from reverie.agents.gorila.parameters import LocalParameterServer, LocalShard, make_shards  # noqa: E402

SPEC = describe("CartPole-v1")
CONFIG = dataclasses.replace(gorila.load_preset("CartPole-v1").config, hidden=(16, 16), batch_size=32)
ALONE = dataclasses.replace(CONFIG, num_learners=1, num_parameter_shards=1, max_staleness=0, bundled=False)
DQN = DqnConfig(**{field.name: getattr(CONFIG, field.name) for field in dataclasses.fields(DqnConfig)})


@pytest.fixture
def filled(make_fake_replay):
    """A function that makes a replay of the same items, drawn in the same order each time."""

    def make():
        replay = make_fake_replay(max_size=1_000, priority_exponent=0.0)
        rng = np.random.default_rng(1)
        for _ in range(300):
            obs, next_obs = rng.normal(size=(2, 4)).astype(np.float32)
            numbers = {"reward": np.float32(rng.normal()), "discount": np.float32(0.9)}
            ints = {"action": np.int64(rng.integers(2)), "weights_version": np.int64(0)}
            replay.insert({"obs": obs, "next_obs": next_obs, **numbers, **ints}, priority=1.0)
        return replay

    return make


def learner_of(agent, config, replay, seed=3, **options):
    return agent.make_learner(SPEC, config, replay, seed=seed, watch=Stopwatch(), **options)


def learnt(agent, config, replay, updates=60):
    learner = learner_of(agent, config, replay)
    for _ in range(updates):
        learner.learn()
    return learner.latest(-1).flat


@pytest.mark.long
@pytest.mark.parametrize("max_grad_norm", [0.05, 1e6], ids=["clipped", "not-clipped"])
def test_one_worker_on_one_shard_is_dqn_bit_for_bit(filled, max_grad_norm):
    change = {"max_grad_norm": max_grad_norm, "target_period": 7}
    one = learnt(dqn, dataclasses.replace(DQN, **change), filled())
    other = learnt(gorila, dataclasses.replace(ALONE, **change), filled())
    assert (one == other).all()
    assert (other != learnt(gorila, dataclasses.replace(ALONE, **change, learning_rate=1e-4), filled())).any()


@pytest.mark.long
@pytest.mark.parametrize("num_shards", [2, 3, 7])
def test_shards_together_are_dqn_within_a_millionth(filled, num_shards):
    change = {"max_grad_norm": 0.05, "target_period": 7, "learning_rate": 1e-3}
    one = learnt(dqn, dataclasses.replace(DQN, **change), filled())
    other = learnt(gorila, dataclasses.replace(ALONE, **change, num_parameter_shards=num_shards), filled())
    assert np.abs(one - other).max() <= 1e-6


@pytest.mark.long
def test_a_shard_clips_by_the_norm_that_was_sent_and_not_by_its_own_ranges(filled, monkeypatch):
    """The twin of the test above: with the norm of the range alone, shards are not DQN."""
    change = {"max_grad_norm": 0.05, "target_period": 7, "learning_rate": 1e-3}
    one = learnt(dqn, dataclasses.replace(DQN, **change), filled())
    push = LocalShard.push
    own = lambda self, gradient, norm, based_on: push(self, gradient, float(np.linalg.norm(gradient)), based_on)  # noqa: E731
    monkeypatch.setattr(LocalShard, "push", own)
    other = learnt(gorila, dataclasses.replace(ALONE, **change, num_parameter_shards=3), filled())
    assert np.abs(one - other).max() > 1e-5


def test_shards_cut_the_vector_into_ranges_whose_lengths_differ_by_one_at_most():
    flat = np.arange(11, dtype=np.float32)
    shards = make_shards(flat, dataclasses.replace(CONFIG, num_parameter_shards=3))
    assert [len(shard.pull().flat) for shard in shards] == [4, 4, 3]
    assert LocalParameterServer(shards).pull().flat.tolist() == flat.tolist()


def server_of(size=10, **changes):
    return LocalParameterServer(make_shards(np.zeros(size, np.float32), dataclasses.replace(CONFIG, **changes)))


def dropped(server):
    return max(shard["dropped"] for shard in server.shard_states())


def push(server, based_on, seed=0):
    gradient = np.random.default_rng(seed).normal(size=10).astype(np.float32)
    return server.push(gradient, float(np.linalg.norm(gradient)), based_on)


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_a_gradient_that_is_too_stale_is_dropped_and_counted_and_changes_nothing(max_staleness):
    server = server_of(max_staleness=max_staleness)
    first = server.pull().versions
    for i in range(max_staleness + 1):
        assert push(server, first, seed=i)
    before = server.shard_states()
    assert not push(server, first)
    after = server.shard_states()
    assert dropped(server) == 1
    assert server.pull().version == max_staleness + 1
    for one, other in zip(before, after, strict=True):
        assert (one["flat"] == other["flat"]).all()
        assert {"step", "exp_avg", "exp_avg_sq"} <= one["optimizer"].keys()
        for name, moment in one["optimizer"].items():
            assert (moment == other["optimizer"][name]).all()
    assert push(server, server.pull().versions)
    assert dropped(server) == 1


def test_each_shard_checks_staleness_by_its_own_version():
    """Shards differ: one has processed another worker's gradient that the other has not received yet."""
    config = dataclasses.replace(CONFIG, num_parameter_shards=2, max_staleness=0)
    left, right = make_shards(np.zeros(10, np.float32), config)
    server = LocalParameterServer([left, right])
    versions = server.pull().versions
    left.push(np.ones(5, np.float32), 1.0, 0)
    between = server.pull()
    assert (between.versions, between.version) == ((1, 0), 0)
    assert not push(server, versions)
    assert server.pull().versions == (1, 1)
    assert (left.dropped, right.dropped) == (1, 0)


def test_a_restored_server_continues_bit_for_bit():
    one, other = server_of(max_staleness=1), server_of(max_staleness=1)
    for i in range(3):
        push(one, (0, 0) if i < 2 else (1, 1), seed=i)
    assert not push(one, (0, 0))
    other.load_shard_states(one.shard_states())
    assert dropped(other) == dropped(one) == 1
    for server in (one, other):
        assert push(server, server.pull().versions, seed=9)
    assert other.pull().versions == one.pull().versions
    assert (other.pull().flat == one.pull().flat).all()


@pytest.mark.parametrize(
    ("gradient", "norm", "based_on", "message"),
    [
        (np.zeros(9, np.float32), 1.0, (0, 0), r"gradient has shape \(9,\), and the server needs \(10,\)"),
        (np.zeros(10, np.float32), float("nan"), (0, 0), "norm is nan, and must be finite"),
        (np.zeros(10, np.float32), -1.0, (0, 0), "norm is -1.0, and must be finite and not below 0"),
        (np.zeros(10, np.float32), 1.0, (1, 0), "based_on is 1, and this shard is at version 0"),
    ],
)
def test_an_invalid_push_is_refused(gradient, norm, based_on, message):
    server = server_of(num_parameter_shards=2)
    with pytest.raises(ValueError, match=message):
        server.push(gradient, norm, based_on)
    assert server.pull().versions == (0, 0)


def test_staleness_of_workers_in_turns_is_their_number_minus_one_and_is_logged(filled):
    config = dataclasses.replace(CONFIG, num_learners=3, max_staleness=2)
    learner, staleness = learner_of(gorila, config, filled()), []
    for _ in range(9):
        learner.learn()
        staleness.append(learner.metrics()["staleness"])
    assert staleness == [0, 1, 2, 2, 2, 2, 2, 2, 2]
    assert learner.version == 9
    assert learner.metrics()["gradients_dropped"] == 0


def test_max_staleness_drops_late_gradients_of_workers_in_turns(filled):
    config = dataclasses.replace(CONFIG, num_learners=3, max_staleness=1)
    learner = learner_of(gorila, config, filled())
    for _ in range(9):
        learner.learn()
    metrics = learner.metrics()
    assert metrics["gradients"] == 9
    assert metrics["gradients_dropped"] == 9 - learner.version == 3


def test_targets_follow_the_versions_of_the_server_not_of_the_worker(filled, networks_of):
    config = dataclasses.replace(CONFIG, num_learners=2, max_staleness=1, target_period=5)
    learner, seen = learner_of(gorila, config, filled()), {}
    seen[0] = learner.latest(-1).flat
    for version in range(1, 13):
        learner.learn()
        seen[version] = learner.latest(-1).flat
        networks = networks_of(learner)
        # Worker 0 pulls odd versions, worker 1 even ones.
        for index, due in ((0, {0: 0, 5: 5, 11: 11}), (1, {0: 0, 6: 6, 10: 10})):
            expected = due[max(at for at in due if at <= version)]
            assert (networks[f"target-{index}"] == seen[expected]).all(), (version, index)


def test_a_resumed_learner_restores_the_turn_and_the_versions_of_its_workers(filled, networks_of):
    config = dataclasses.replace(CONFIG, num_learners=2, max_staleness=1, target_period=5)
    replay = filled()
    one, other = learner_of(gorila, config, replay), learner_of(gorila, config, filled(), seed=8)
    for _ in range(7):
        one.learn()
    state = one.state_dict()
    other.load_state_dict(state)
    other._client = filled()
    for _ in range(7):
        other._client.sample_batch("replay", config.batch_size)  # as far along as the other's
    for _ in range(6):
        one.learn()
        other.learn()
    assert other.metrics() == one.metrics()
    assert other.metrics()["gradients"] == 13
    for name, flat in networks_of(one).items():
        assert (flat == networks_of(other)[name]).all(), name


def test_workers_with_a_remote_server_learn_as_in_one_process(filled):
    """Like a runner with processes, each worker has a learner; pushes are in the same order."""
    config = dataclasses.replace(CONFIG, num_learners=2, num_parameter_shards=2, max_staleness=1, target_period=5)
    together, replay = learner_of(gorila, config, filled()), filled()
    server = make_parameter_server(SPEC, config, seed=3)
    apart = [learner_of(gorila, config, replay, seed=99, server=server, index=i) for i in range(2)]
    for turn in range(12):
        together.learn()
        apart[turn % 2].learn()
    assert (server.latest(-1).flat == together.latest(-1).flat).all()
    assert apart[0].latest(11).version == 12
    assert apart[0].latest(12) is None
    assert apart[0].state_dict()["server"] is None


def test_a_late_worker_starts_with_the_servers_parameters_in_both_networks(filled, networks_of):
    config = dataclasses.replace(CONFIG, num_learners=2, max_staleness=1, target_period=5)
    server = make_parameter_server(SPEC, config, seed=3)
    early = learner_of(gorila, config, filled(), server=server, index=0)
    for _ in range(7):
        early.learn()
    late = networks_of(learner_of(gorila, config, filled(), server=server, index=1))
    assert (late["online-1"] == server.pull().flat).all()
    assert (late["target-1"] == server.pull().flat).all()


SHORT = RunSettings(
    target_return=475.0, max_env_steps=1_200, evaluate_every=1_200, screening_episodes=2, confirmation_episodes=2
)
BUNDLED = dataclasses.replace(
    gorila.load_preset("CartPole-v1").config,
    num_actors=2,
    num_learners=2,
    envs_per_actor=2,
    hidden=(16,),
    batch_size=32,
    samples_per_insert=8.0,
    bundled=True,
    learning_starts=200,
    capacity=2_000,
    max_staleness=8,
)


def test_a_bundle_draws_from_the_table_of_its_own_actor_alone():
    server = reverie.Server(gorila.make_tables(SPEC, BUNDLED, seed=0), listen=False)
    client, drawn = server.client(), []

    class Tape:
        def __getattr__(self, name):
            return getattr(client, name)

        def sample_batch(self, table, *args, **kwargs):
            drawn.append(table)
            return client.sample_batch(table, *args, **kwargs)

    learner = learner_of(gorila, BUNDLED, Tape())
    actors = [gorila.make_actor(SPEC, BUNDLED, client, learner, index=i, seed=i, watch=Stopwatch()) for i in range(2)]
    while not client.can_sample("replay-1", BUNDLED.batch_size):
        actors[1].act()
    tables = client.info().tables
    assert tables["replay-0"].num_inserts == 0
    while client.can_sample("replay-1", BUNDLED.batch_size):
        learner.learn()
    while not client.can_sample("replay-0", BUNDLED.batch_size):
        actors[0].act()
    learner.learn()
    assert set(drawn[:-1]) == {"replay-1"}
    assert drawn[-1] == "replay-0"
    for table in ("replay-0", "replay-1"):
        info = client.info().tables[table]
        assert info.num_inserts >= BUNDLED.learning_starts
        assert info.num_samples == drawn.count(table) * BUNDLED.batch_size
    for actor in actors:
        actor.close()
    server.stop()


@pytest.mark.long
@pytest.mark.parametrize("bundled", [True, False])
def test_the_local_runner_gives_the_same_run_twice_in_both_modes(bundled):
    from reverie.runners import train

    config = dataclasses.replace(BUNDLED, bundled=bundled)
    one, two = (train(gorila, "CartPole-v1", seed=5, config=config, run=SHORT) for _ in range(2))
    assert (one.weights.flat == two.weights.flat).all()
    assert one.learner["updates"] == one.replay["samples"] / config.batch_size > 50
    tables = 2 if bundled else 1
    ratio = (one.replay["samples"] + tables * config.samples_per_insert * config.learning_starts) / one.replay[
        "inserts"
    ]
    assert ratio == pytest.approx(config.samples_per_insert, rel=0.02)
    assert one.learner["staleness"] in (0, 1, 2, 3, 4)
    names = "tables 'replay-0', 'replay-1'" if bundled else "table 'replay'"
    assert (
        f"2 actors of 2 environments, 2 learners on 2 parameter shards, one greedy evaluator, {names} in"
        in one.topology.describe()
    )


@pytest.mark.long
def test_a_bundled_run_resumes_with_all_its_tables(tmp_path):
    from reverie.runners import checkpoints, train

    options = {"seed": 5, "config": BUNDLED}
    train(gorila, "CartPole-v1", run=SHORT, folder=tmp_path, **options)
    longer = dataclasses.replace(SHORT, max_env_steps=1_600)
    one, two = (
        train(gorila, "CartPole-v1", run=longer, resume=checkpoints.find(tmp_path), **options) for _ in range(2)
    )
    assert (one.weights.flat == two.weights.flat).all()
    assert one.weights.version > 200
    assert one.replay["inserts"] > 1_500


def test_bundles_with_unequal_numbers_of_actors_and_learners_are_refused():
    with pytest.raises(ValueError, match="num_learners is 3 and num_actors 2: bundled, each actor has one learner"):
        dataclasses.replace(BUNDLED, num_learners=3)
