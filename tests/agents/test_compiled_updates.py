"""Updates through the compiler: a minute of processor time for each graph."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie import agents, rate_limiters  # noqa: E402
from reverie.agents import compiling, tracing  # noqa: E402
from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.core import CompilePlan, RunSettings  # noqa: E402
from reverie.agents.outcomes import DivergedError  # noqa: E402
from reverie.runners import UpdatesCompiled, train  # noqa: E402

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("compiled updates"),
    pytest.mark.skipif(bool(compiling.missing_compiler()), reason=compiling.missing_compiler()),
]
SOON = CompilePlan(begin=0, use_from=1, required=True)
RUN = RunSettings(
    target_return=None,
    max_env_steps=1_500,
    evaluate_every=1_500,
    screening_episodes=1,
    confirmation_episodes=1,
    compile="on",
)
SMALL = {"hidden": (16,), "batch_size": 32, "target_period": 5}
CONFIG = dataclasses.replace(
    apex_dqn.load_preset("CartPole-v1").config, samples_per_insert=8.0, learning_starts=300, **SMALL
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache folder that is empty at first."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("REVERIE_CACHE", str(folder))
        yield folder / "compiled"


def trained(folder, run=RUN, **options):
    """The result of a run, and what its compiler has done."""
    events = []
    result = train(apex_dqn, "CartPole-v1", run=run, config=CONFIG, on_event=events.append, folder=folder, **options)
    return result, [event.note for event in events if isinstance(event, UpdatesCompiled)]


@pytest.fixture(scope="module")
def compiled_run(tmp_path_factory, cache):
    """The folder of the first run of this graph, which the tests that take this share, and what `trained` returns."""
    folder = tmp_path_factory.mktemp("run")
    return folder, *trained(folder)


def without_feedback(learner):
    """The learner, whose new priorities are noted and do not change what is drawn; and these priorities."""
    noted, replay = [], learner._client
    update = replay.update_priorities
    replay.update_priorities = lambda table, keys, priorities: (
        noted.append(priorities) or update(table, keys[:0], priorities[:0])
    )
    return learner, noted


# TD3's two graphs take a minute of processor time; test_compiling.py has both, operation by operation.
@pytest.mark.parametrize("name", ["apex-dqn", pytest.param("td3", marks=pytest.mark.slow)])
def test_compiled_updates_are_those_of_single_operations_within_rounding(name, make_learner, request):
    """Covers both kinds of updates of TD3, its noise, copies into target networks, and a state that goes on."""
    changes = SMALL if name == "apex-dqn" else {}
    if name == "apex-dqn":
        request.getfixturevalue("compiled_run")
    (learner, noted), (other, expected) = (without_feedback(make_learner(name, **changes)) for _ in range(2))
    learner.compile_updates(SOON)
    learner.learn()
    other.learn()
    for _ in range(21):
        learner.learn()  # the first of them waits for the compiler, if there is no library
        other.learn()
    assert learner.metrics()["updates_compiled"] == 21
    for one, two in zip(tracing.GraphState(learner).tensors, tracing.GraphState(other).tensors, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    assert len(noted) == len(expected) == (22 if name == "apex-dqn" else 0)
    for one, two in zip(noted, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    for figure in ("critics_loss", "policy_loss") if name == "td3" else ():
        assert learner.metrics()[figure] == pytest.approx(other.metrics()[figure], rel=1e-2, abs=1e-4)
    third = make_learner(name, **changes)
    third.load_state_dict(learner.state_dict())
    for one, two in zip(tracing.GraphState(learner).tensors, tracing.GraphState(third).tensors, strict=True):
        assert torch.equal(one, two)
    assert learner.state_dict()["optimizers"].keys() == other.state_dict()["optimizers"].keys()
    steps = [one.state_dict()["optimizers"] for one in (learner, other)]
    assert all(steps[0][key]["step"] == steps[1][key]["step"] for key in steps[0])
    if name == "apex-dqn":
        draw = learner._draw

        def infinite():
            batch = draw()
            batch.data["reward"] = torch.full_like(batch.data["reward"], torch.inf)
            return batch

        learner._draw, before = infinite, len(noted)
        with pytest.raises(DivergedError):
            learner.learn()
        assert learner.metrics()["updates_compiled"] == 22
        assert len(noted) == before
    learner.stop_compiling()


# A graph takes twenty seconds of processor time; test_compiled_unrolls.py has both, operation by operation.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env_id", "changes"),
    [
        ("ppo", "CartPole-v1", {"target_kl": 0.01, "value_clip": 0.2, "epochs": 4, "anneal_updates": 5}),
        ("ppo", "Pendulum-v1", {"epochs": 4, "minibatch_size": 128}),
        ("impala", "CartPole-v1", {"num_actors": 1, "queue_capacity": 8}),
    ],
)
def test_compiled_updates_of_unrolls_are_those_of_single_operations_within_rounding(
    name, env_id, changes, make_unroll_harness
):
    agent = agents.find(name)
    config = dataclasses.replace(agent.load_preset(env_id).config, hidden=(16,), **changes)
    one, other = (make_unroll_harness(agent, config, env_id) for _ in range(2))
    one.learner.compile_updates(SOON)
    for _ in range(4):
        for harness in (one, other):
            harness.learn(1)  # the second one waits for the compiler
    assert one.learner.metrics()["updates_compiled"] > 0
    for a, b in zip(tracing.GraphState(one.learner).tensors, tracing.GraphState(other.learner).tensors, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    one.learner.stop_compiling()


# The graph takes most of a minute of processor time.
@pytest.mark.slow
def test_compiled_updates_of_sequences_are_those_of_the_fused_lstm_within_rounding(make_harness):
    small = {"hidden": (8,), "lstm_units": 6, "sequence_length": 4, "sequence_period": 2, "burn_in": 3, "batch_size": 8}
    agent, harnesses = agents.find("r2d2"), []
    for _ in range(2):
        config = agent.load_preset("CartPole-v1").config
        client, learner, (actor,), _ = make_harness(
            agent, config, "CartPole-v1", num_actors=1, target_period=3, **small
        )
        client.configure("replay", rate_limiter=rate_limiters.MinSize(1))
        for _ in range(40):
            actor.act()
        harnesses.append(learner)
    compiled, single = harnesses
    compiled.compile_updates(SOON)
    for _ in range(5):
        for learner in harnesses:
            learner.learn()
    assert compiled.metrics()["updates_compiled"] > 0
    for a, b in zip(tracing.GraphState(compiled).tensors, tracing.GraphState(single).tensors, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    compiled.stop_compiling()


def test_a_run_compiles_once_and_the_same_seed_gives_the_same_run(compiled_run, tmp_path):
    folder, one, notes = compiled_run
    two, others = trained(tmp_path)
    assert [note.found for note in (*notes, *others)] == [False, True]
    assert [note.reason for note in (*notes, *others)] == ["", ""]
    assert (one.weights.flat == two.weights.flat).all()
    assert one.learner["updates_compiled"] == one.learner["updates"] - 1 > 100
    resumed, _ = trained(folder, dataclasses.replace(RUN, max_env_steps=2_000, compile="off"), resume="must")
    assert resumed.learner["updates"] > one.learner["updates"]
    assert "updates_compiled" not in resumed.learner


@pytest.mark.usefixtures("compiled_run")
def test_a_learner_of_the_same_graph_finds_the_library_of_a_run(make_learner):
    learner = make_learner("apex-dqn", **SMALL)
    learner.compile_updates(SOON)
    learner.learn()
    (note,) = learner.drain_compile_notes()
    assert note.found


@pytest.mark.usefixtures("compiled_run")
def test_the_learner_of_a_run_in_processes_compiles_too(tmp_path):
    result, (note,) = trained(tmp_path, runner="process")
    assert note.reason == ""
    assert result.learner["updates_compiled"] == result.learner["updates"] - 1


def test_a_compiler_ends_with_the_process_that_began_it(make_learner, cache):
    learner = make_learner("dqn", huber_delta=0.5)  # no other test has compiled this graph
    learner.compile_updates(CompilePlan(begin=0, use_from=None, required=False))
    learner.learn()
    (job,) = learner._compiler._jobs
    job.process.stdin.close()
    assert job.process.wait() == -9
    assert not list(cache.glob(f"{job.folder.name}/*.so"))
    learner.stop_compiling()
    assert not job.folder.exists()
