import dataclasses
import importlib
from functools import partial
from unittest.mock import Mock

import pytest

pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.cql import agent as cql
from reverie.agents.environments import UnknownEnvironmentError, UnsupportedEnvironmentError
from reverie.agents.gorila import agent as gorila
from reverie.agents.impala import agent as impala
from reverie.agents.ppo import agent as ppo
from reverie.agents.r2d2 import agent as r2d2
from reverie.runners import train
from reverie.runners.planning.memory import DoesNotFitError
from reverie.runners.planning.plan import plan

gymnasium = pytest.importorskip("gymnasium")


def test_a_plan_describes_roles_environment_and_end():
    topology = plan(apex_dqn, "CartPole-v1", seed=3)
    assert (topology.num_actors, topology.envs_per_actor, topology.seed) == (2, 4, 3)
    assert topology.env.num_actions == 2
    assert topology.needs.inserts_per_act == 4 * topology.config.n_step
    text = topology.describe()
    for word in ("apex-dqn on CartPole-v1, seed 3", "2 actors of 4", "475", "MiB", str(topology.preset)):
        assert word in text


def test_a_plan_counts_the_rows_on_the_disk_of_every_table(tmp_path):
    def rows(config):
        run = dataclasses.replace(plan(gorila, "CartPole-v1").run, replay_disk=str(tmp_path), replay_memory=1000)
        planned = plan(gorila, "CartPole-v1", config=config, run=run, runner="process", check_memory=False)
        return planned.memory["rows of the replay's items on the disk"]

    config = dataclasses.replace(gorila.load_preset("CartPole-v1").config, num_learners=2, num_actors=2)
    one, bundled = rows(config), rows(dataclasses.replace(config, bundled=True))
    assert 1.99 < bundled / one < 2.01


def test_a_data_set_is_found_from_another_directory_and_other_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    row = {"obs": [[0.0] * 4], "action": [0], "reward": [1.0], "terminated": [True]}
    pq.write_table(pa.table(row), tmp_path / "rows.parquet")
    config = cql.load_preset("CartPole-v1").config
    for name, planned in (("rows.parquet", str(tmp_path / "rows.parquet")), ("elsewhere", "elsewhere"), ("", "")):
        of = dataclasses.replace(config, dataset=name)
        assert plan(cql, "CartPole-v1", config=of, runner="ray").config.dataset == planned, "a node may have it"
        if name == "elsewhere":
            with pytest.raises(FileNotFoundError, match="elsewhere"):
                plan(cql, "CartPole-v1", config=of)
        else:
            assert plan(cql, "CartPole-v1", config=of).config.dataset == planned


def test_a_plan_names_the_device_of_policies_where_it_is_another_one():
    topology = plan(apex_dqn, "CartPole-v1")
    assert "; on cpu; preset" in topology.describe()
    run = dataclasses.replace(topology.run, device="cuda", actor_device="cpu")
    assert "; on cuda, policies on cpu; preset" in dataclasses.replace(topology, run=run).describe()


def test_a_plan_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(apex_dqn, "CartPole-v1").seed = 4
    with pytest.raises(TypeError):
        plan(apex_dqn, "CartPole-v1").memory["more"] = 1


def test_an_unknown_environment_names_those_that_look_like_it():
    with pytest.raises(UnknownEnvironmentError, match=r"'CartPoel-v1'.*did you mean CartPole-v1") as caught:
        plan(apex_dqn, "CartPoel-v1")
    assert caught.value.env_id == "CartPoel-v1"
    assert "CartPole-v1" in caught.value.nearest


@pytest.mark.parametrize("env", [lambda: None, object()])
def test_an_invalid_environment_id_is_refused_with_what_it_may_be(env):
    with pytest.raises(TypeError, match="must be the id of an environment, or a class or function that makes one"):
        plan(apex_dqn, env)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"config": {"batch_size": 3}},
            "config is a dict, and apex-dqn takes a ApexDqnConfig: change that of a preset",
        ),
        ({"config": ppo.load_preset("CartPole-v1").config}, "config is a PpoConfig"),
        ({"run": {"max_env_steps": 3}}, "run is a dict, and a run takes a RunSettings"),
        ({"seed": "3"}, "seed must be an int, got '3'"),
        ({"seed": None}, "seed must be an int, got None"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(options, words):
    with pytest.raises(TypeError, match=words):
        plan(apex_dqn, "CartPole-v1", **options)


def test_an_agent_by_its_name_is_refused_with_how_to_find_it():
    with pytest.raises(TypeError, match=r"agent is 'dqn', and must be an Agent: reverie\.agents\.find gives"):
        plan("dqn", "CartPole-v1")


def test_a_count_that_is_not_an_int_is_refused():
    with pytest.raises(TypeError, match=r"max_env_steps is 1\.5, and must be an int"):
        dataclasses.replace(ppo.load_preset("CartPole-v1").run, max_env_steps=1.5)


def test_observations_without_an_axis_get_one():
    gymnasium.register("Scalar-v0", entry_point=Scalar)
    assert plan(apex_dqn, "Scalar-v0").env.obs_shape == (1,)


class Scalar(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, ())
    action_space = gymnasium.spaces.Discrete(2)


def test_the_error_for_an_unknown_environment_without_similar_names_explains_how_to_list_all():
    with pytest.raises(UnknownEnvironmentError, match=r"pprint_registry"):
        plan(apex_dqn, "zzzzzzzz")


def test_an_environment_without_a_preset_is_refused_if_its_actions_do_not_fit():
    with pytest.raises(UnsupportedEnvironmentError, match="Pendulum-v1 are Box"):
        plan(apex_dqn, "Pendulum-v1")


def test_a_run_that_cannot_fit_is_refused_with_both_numbers_and_the_largest_part():
    config = dataclasses.replace(apex_dqn.load_preset("CartPole-v1").config, capacity=10**9)
    with pytest.raises(
        DoesNotFitError, match=r"needs about \d+\.\d GiB and 8\.0 GiB are free.*1,000,000,000 items"
    ) as e:
        plan(apex_dqn, "CartPole-v1", config=config, available_bytes=8 * 2**30)
    assert e.value.available == 8 * 2**30
    assert e.value.needed > 50 * 10**9


@pytest.mark.parametrize(
    ("agent", "settings", "runner", "hint"),
    [
        (apex_dqn, {"capacity": 10**9}, "local", r"replay of .*: lower the capacity, or free memory"),
        (apex_dqn, {"hidden": (100_000, 100_000)}, "local", r"networks .*: lower the widths of the networks"),
        (apex_dqn, {"batch_size": 10**9}, "local", r"batches .*: lower batch_size"),
        (apex_dqn, {"num_actors": 1_000}, "process", r"Python and PyTorch .*: ask for fewer actors \(num_actors\)"),
        (impala, {"queue_capacity": 10**9}, "local", r"unrolls in the queue.*: lower queue_capacity"),
    ],
)
def test_the_error_names_a_way_to_shrink_the_largest_part(agent, settings, runner, hint):
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, **settings)
    with pytest.raises(DoesNotFitError, match=hint):
        plan(agent, "CartPole-v1", config=config, runner=runner, available_bytes=8 * 2**30)


def test_a_run_that_just_fits_is_not_refused():
    needed = plan(apex_dqn, "CartPole-v1").memory_bytes
    plan(apex_dqn, "CartPole-v1", available_bytes=needed)
    with pytest.raises(DoesNotFitError):
        plan(apex_dqn, "CartPole-v1", available_bytes=needed - 1)


def test_shards_are_planned_if_runner_and_table_support_them():
    topology = plan(apex_dqn, "CartPole-v1", runner="process", num_shards=2)
    assert {place.role: place.count for place in topology.places} == {
        "shard": 2,
        "learner": 1,
        "evaluator": 1,
        "actor": 2,
    }
    assert topology.num_processes == 7
    assert topology.memory_bytes > plan(apex_dqn, "CartPole-v1").memory_bytes
    with pytest.raises(ValueError, match="num_shards is 2, and the runner 'local' has one shard"):
        plan(apex_dqn, "CartPole-v1", num_shards=2)
    with pytest.raises(ValueError, match=r"num_shards is 2, which ppo does not support: .*max_times_sampled"):
        plan(ppo, "CartPole-v1", runner="process", num_shards=2)
    with pytest.raises(ValueError, match=r"num_shards is 3, and num_actors 2: .*: ask for at most 2, or for more"):
        plan(apex_dqn, "CartPole-v1", runner="process", num_shards=3)


def test_several_learners_in_processes_need_parameter_shards():

    several = dataclasses.replace(plan(apex_dqn, "CartPole-v1").needs, num_learners=2)
    agent = dataclasses.replace(apex_dqn, needs=lambda config: several)
    with pytest.raises(
        ValueError, match=r"has 2 learners and 1 table .* no parameter shards: in separate processes its learners"
    ):
        plan(agent, "CartPole-v1", runner="process")
    assert plan(agent, "CartPole-v1").needs.num_learners == 2


@pytest.mark.parametrize("runner", ["process", "ray"])
def test_learners_parameter_shards_and_bundles_have_their_own_places(runner):
    config = dataclasses.replace(
        gorila.load_preset("CartPole-v1").config, num_learners=3, num_parameter_shards=4, num_actors=3
    )
    topology = plan(gorila, "CartPole-v1", runner=runner, config=config)
    counts = {place.role: place.count for place in topology.places}
    assert counts == {"shard": 1, "learner": 3, "actor": 3, "parameter shard": 4, "evaluator": 1}
    assert topology.num_processes == 13
    assert "3 learners on 4 parameter shards" in topology.describe()
    apart = plan(gorila, "CartPole-v1", runner=runner, config=dataclasses.replace(config, bundled=True))
    counts = {place.role: place.count for place in apart.places}
    assert counts == {"bundle": 3, "parameter shard": 4, "evaluator": 1}
    assert apart.num_servers == 3
    spread = plan(gorila, "CartPole-v1", runner=runner, config=config, num_shards=2)
    assert {place.role: place.count for place in spread.places}["shard"] == 2
    bundled = dataclasses.replace(config, bundled=True, num_learners=2, num_actors=2)
    with pytest.raises(ValueError, match="num_shards is 2, and bundled each actor of gorila"):
        plan(gorila, "CartPole-v1", runner=runner, config=bundled, num_shards=2)


@pytest.mark.parametrize(
    ("agent", "runner", "ahead"), [(apex_dqn, "process", 2), (apex_dqn, "ray", 2), (ppo, "ray", 0)]
)
def test_batches_are_prefetched_if_roles_are_separate_and_draws_consume_nothing(agent, runner, ahead):
    topology = plan(agent, "CartPole-v1", runner=runner)
    assert topology.prefetch == ahead
    assert ("2 batches ahead" in topology.memory) == (ahead == 2)
    assert plan(agent, "CartPole-v1").prefetch == 0


def test_prefetch_can_be_set():
    run = apex_dqn.load_preset("CartPole-v1").run
    for wish in (0, 5):
        wished = dataclasses.replace(run, prefetch=wish)
        topology = plan(apex_dqn, "CartPole-v1", runner="process", run=wished)
        assert topology.prefetch == wish
    batch = topology.config.batch_size * 2 * topology.env.obs_bytes
    assert topology.memory["5 batches ahead"] == 5 * batch
    with pytest.raises(ValueError, match="prefetch is -1, and must not be below 0"):
        dataclasses.replace(run, prefetch=-1)


@pytest.mark.parametrize(("prefetch", "locked", "drawn"), [(2, 4, 1), (7, 4, 1), (0, 2, 0)])
def test_a_learner_on_a_gpu_has_batches_that_are_copied_there(prefetch, locked, drawn):
    preset = apex_dqn.load_preset("CartPole-v1")
    config = dataclasses.replace(preset.config, batch_size=96)
    cpu, gpu = (
        plan(apex_dqn, "CartPole-v1", runner="ray", config=config, run=dataclasses.replace(preset.run, **options))
        for options in ({"prefetch": prefetch}, {"prefetch": prefetch, "device": "cuda"})
    )
    # 96 rows of two observations of 16 bytes, in page-locked memory of the next power of two.
    batch, rounded = 96 * 2 * 16, 4096
    assert gpu.memory_bytes - cpu.memory_bytes == locked * rounded + drawn * batch
    learners = [next(one for one in topology.places if one.role == "learner") for topology in (cpu, gpu)]
    assert learners[1].memory_bytes - learners[0].memory_bytes == gpu.memory_bytes - cpu.memory_bytes


def test_a_batch_of_sequences_has_the_observations_of_all_their_steps():
    topology = plan(r2d2, "CartPole-v1", runner="process")
    config = topology.config
    assert topology.memory["2 batches ahead"] == 2 * config.batch_size * config.rows * topology.env.obs_bytes
    assert config.rows == config.burn_in + config.sequence_length + 1 > 2


def test_unsupported_prefetch_is_refused_with_the_reason():
    bundled = dataclasses.replace(gorila.load_preset("CartPole-v1").config, bundled=True)
    for agent, runner, config, why in (
        (apex_dqn, "local", None, r"prefetch is 2, and in one process learning and acting take turns"),
        (ppo, "process", None, r"prefetch is 2, and each learner of ppo draws from a queue"),
        (gorila, "process", bundled, r"each learner of gorila draws in turns with its actor: leave it out"),
    ):
        run = dataclasses.replace(agent.load_preset("CartPole-v1").run, prefetch=2)
        with pytest.raises(ValueError, match=why):
            plan(agent, "CartPole-v1", runner=runner, run=run, config=config)
        plan(agent, "CartPole-v1", runner=runner, run=dataclasses.replace(run, prefetch=0), config=config)


@pytest.mark.parametrize("bundles", [1, 3])
def test_shards_of_bundles_are_refused_with_the_alternatives(bundles):
    config = dataclasses.replace(
        gorila.load_preset("CartPole-v1").config, bundled=True, num_actors=bundles, num_learners=bundles
    )
    servers = f"{bundles} server{'s' if bundles > 1 else ''} already"
    with pytest.raises(ValueError, match=rf"num_shards is 2, .*{servers}: set bundled=false for one .* over 2 shards"):
        plan(gorila, "CartPole-v1", runner="process", config=config, num_shards=2)
    assert plan(gorila, "CartPole-v1", runner="process", config=config).num_servers == bundles


def runner(name, monkeypatch):
    """`train` of a runner that starts nothing."""
    if name == "ray":
        pytest.importorskip("ray")
        pytest.importorskip("cryptography")
    module = importlib.import_module(f"reverie.runners.{name}{'.cluster' if name == 'ray' else ''}")
    begins = {"local": "Server", "process": "Processes", "ray": "connected"}[name]
    monkeypatch.setattr(module, begins, Mock(side_effect=AssertionError("it began")))
    return partial(train, runner=name)


@pytest.mark.parametrize("name", ["local", "process", "ray"])
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"agent": 5}, TypeError, "agent is 5, and must be an Agent"),
        ({"env_id": "NoSuch-v0"}, UnknownEnvironmentError, "no environment 'NoSuch-v0'"),
        ({"seed": "a"}, TypeError, "seed must be an int, got 'a'"),
        ({"config": {"n_step": 3}}, TypeError, "config is a dict, and apex-dqn takes a ApexDqnConfig"),
        ({"run": {"max_env_steps": 3}}, TypeError, "run is a dict, and a run takes a RunSettings"),
        ({"preset": 5}, TypeError, "preset must be a path, got 5"),
        ({"folder": 5}, TypeError, "folder must be a path, got 5"),
        ({"resume": 5}, TypeError, "resume must be a path, got 5"),
        ({"on_event": 5}, TypeError, "on_event must be a function, or a list of some, got 5"),
        ({"should_stop": True}, TypeError, "should_stop must be a function, got True"),
    ],
)
def test_every_runner_refuses_wrong_arguments_in_the_same_words_before_anything_begins(
    monkeypatch, name, changes, error, words
):
    given = {"agent": apex_dqn, "env_id": "CartPole-v1", **changes}
    with pytest.raises(error, match=words):
        runner(name, monkeypatch)(given.pop("agent"), given.pop("env_id"), **given)


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [(0, ValueError, "num_shards must be at least 1, got 0"), ("2", TypeError, "num_shards must be an int, got '2'")],
)
def test_a_run_on_no_shard_is_refused(monkeypatch, number, error, words):
    with pytest.raises(error, match=words):
        runner("process", monkeypatch)(apex_dqn, "CartPole-v1", num_shards=number)


def test_a_table_that_never_makes_the_learner_wait_is_refused_in_one_process():
    from reverie import Table, rate_limiters, selectors

    def agent_with(limiter, **more):
        def tables(spec, config, *, seed):
            made = Table("replay", selectors.Uniform(seed=seed), selectors.Fifo(), 500, limiter, **more)
            own = Table("own", selectors.Uniform(seed=seed), selectors.Fifo(), 10, rate_limiters.MinSize(1))
            return [made, own]  # turns are decided by the first

        return dataclasses.replace(apex_dqn, make_tables=tables)

    endless = agent_with(rate_limiters.MinSize(200))
    with pytest.raises(ValueError, match=r"'replay' of apex-dqn has the rate limiter MinSize, which does not bound"):
        plan(endless, "CartPole-v1")
    assert plan(endless, "CartPole-v1", runner="process").runner == "process"
    for fits in (
        agent_with(rate_limiters.SampleToInsertRatio(4.0, 200, 1000.0)),
        agent_with(rate_limiters.MinSize(1), max_times_sampled=1),
        agent_with(rate_limiters.Queue(10)),
    ):
        assert plan(fits, "CartPole-v1").runner == "local"


def test_a_seed_may_be_any_integer_with_any_number_of_shards():
    assert plan(apex_dqn, "CartPole-v1", seed=-3).seed == -3
    assert plan(apex_dqn, "CartPole-v1", seed=-3, runner="process", num_shards=2).num_shards == 2
