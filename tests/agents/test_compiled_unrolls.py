"""Updates of agents that learn from unrolls as compiled graphs, here operation by operation: the same numbers.

`test_compiled_updates` runs a compiler.
"""

import dataclasses
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from reverie import rate_limiters  # noqa: E402
from reverie.agents import compiling, tracing  # noqa: E402
from reverie.agents.core import CompilePlan  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.impala import agent as impala  # noqa: E402
from reverie.agents.outcomes import DivergedError  # noqa: E402
from reverie.agents.ppo import agent as ppo  # noqa: E402
from reverie.agents.r2d2 import agent as r2d2  # noqa: E402

SOON = CompilePlan(begin=0, use_from=1, required=True)
PPO = dataclasses.replace(
    ppo.load_preset("CartPole-v1").config,
    num_actors=1,
    envs_per_actor=4,
    unroll_length=16,
    hidden=(16,),
    epochs=4,
    minibatch_size=16,
    learning_rate=3e-3,
    anneal_updates=0,
)
IMPALA = dataclasses.replace(
    impala.load_preset("CartPole-v1").config,
    num_actors=1,
    envs_per_actor=4,
    batch_size=4,
    hidden=(16,),
)
NORMALISED = EnvSettings(normalise_observations=True, normalise_rewards=True)


class Interpreted(compiling.CompiledUpdate):
    """Replaces a compiled update by the traced graph, operation by operation."""

    def __init__(self, graph, library):
        self.graph = graph

    def _run(self, tensors):
        with torch.no_grad():
            return self.graph.module(*tensors)


@pytest.fixture(autouse=True)
def graphs(monkeypatch, tmp_path):
    """The graphs for which a compiler was started; it has ended at once, and they are interpreted."""
    started = []
    ended = SimpleNamespace(process=SimpleNamespace(poll=lambda: 0, returncode=0), close=lambda: None)
    monkeypatch.setenv("REVERIE_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "missing_compiler", lambda: "")
    monkeypatch.setattr(compiling, "CompiledUpdate", Interpreted)
    monkeypatch.setattr(compiling, "_start", lambda graph, *_: started.append(graph) or ended)
    return started


@pytest.fixture
def harnesses(make_unroll_harness):
    """A function: a harness whose learner compiles as planned, and one like it by single operations."""

    def make(agent, config, env_id, environment=None, plan=SOON):
        compiled, single = (make_unroll_harness(agent, config, env_id, environment) for _ in range(2))
        compiled.learner.compile_updates(plan)
        return compiled, single

    return make


def require_same(one, other):
    """Raise AssertionError if states differ by more than rounding, or figures."""
    states = [tracing.GraphState(harness.learner).tensors for harness in (one, other)]
    for a, b in zip(*states, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    found, expected = (dict(harness.learner.metrics()) for harness in (one, other))
    found.pop("updates_compiled")
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    steps = [harness.learner.state_dict()["optimizers"]["network"].get("step") for harness in (one, other)]
    assert steps[0] == steps[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("env_id", "environment", "changes"),
    [
        ("CartPole-v1", None, {}),
        ("CartPole-v1", NORMALISED, {"shared_layers": True, "entropy_coefficient": 0.01}),
        ("CartPole-v1", None, {"anneal_updates": 4, "normalise_advantages": False, "clip": 0.02}),
        ("CartPole-v1", None, {"anneal_updates": 4, "anneal_clip": False, "minibatch_size": 64}),
        ("Pendulum-v1", None, {"value_clip": 0.1}),
        ("Pendulum-v1", None, {"initial_sigma": 0.5, "max_grad_norm": 0.01}),
    ],
)
def test_compiled_gradient_steps_of_ppo_are_those_of_single_operations(env_id, environment, changes, harnesses, graphs):
    """Some cases have resets among the steps, whose number differs from update to update."""
    compiled, single = harnesses(ppo, dataclasses.replace(PPO, **changes), env_id, environment)
    for _ in range(4):
        for one in (compiled, single):
            one.learn(1)
    require_same(compiled, single)
    steps = 4 if "minibatch_size" in changes else 16
    assert compiled.learner.metrics()["updates_compiled"] == 3 * steps
    assert len(graphs) == 1


@pytest.mark.long
def test_compiled_steps_end_where_the_policy_is_too_far_from_the_actors(harnesses):
    compiled, single = harnesses(ppo, dataclasses.replace(PPO, target_kl=0.002, learning_rate=1e-2), "CartPole-v1")
    made = []
    for _ in range(4):
        for one in (compiled, single):
            one.learn(1)
        made.append(int(compiled.learner.metrics()["gradient_steps"]))
        assert made[-1] == single.learner.metrics()["gradient_steps"]
    assert max(made[1:]) < 16
    assert min(made[1:]) > 0
    # The step that was not made is counted as an update of the graph, and not as a step of Adam.
    assert compiled.learner.metrics()["updates_compiled"] == sum(made[1:]) + 3
    require_same(compiled, single)


@pytest.mark.long
def test_a_plan_counts_gradient_steps_and_whole_updates_are_compiled(harnesses, graphs):
    compiled, single = harnesses(ppo, PPO, "CartPole-v1", plan=CompilePlan(begin=17, use_from=33, required=False))
    for update in range(5):
        for one in (compiled, single):
            one.learn(1)
        assert len(graphs) == (update >= 2)
        assert compiled.learner.metrics()["updates_compiled"] == 16 * max(0, update - 2)
    require_same(compiled, single)


@pytest.mark.long
def test_minibatches_longer_than_the_compiled_ones_are_learnt_from_by_single_operations(harnesses, graphs):
    """An eighth of the steps are resets: 56 are one minibatch of 40, where 64 would be two."""
    config = dataclasses.replace(PPO, minibatch_size=40)
    compiled, single = harnesses(ppo, config, "ReverieCountingTerminated-v0")
    for _ in range(3):
        for one in (compiled, single):
            one.learn(1)
    assert not graphs
    assert compiled.learner.metrics()["updates_compiled"] == 0
    require_same(compiled, single)


@pytest.mark.long
def test_a_compiled_loss_that_is_not_finite_ends_learning(harnesses):
    compiled, _ = harnesses(ppo, dataclasses.replace(PPO, target_kl=0.01), "CartPole-v1")
    compiled.learn(2)
    with torch.no_grad():
        compiled.learner._network.flat[0] = torch.nan
    compiled.fill()
    with pytest.raises(DivergedError, match="loss is not finite at update 2"):
        compiled.learner.learn()
    assert compiled.learner.metrics()["updates_compiled"] == 32 - 16 + 16


@pytest.mark.long
@pytest.mark.parametrize(
    ("environment", "changes"),
    [
        (None, {}),
        (NORMALISED, {"shared_layers": True, "trace_lambda": 0.9}),
        (None, {"anneal_updates": 4, "rho_bar": 1.5, "c_bar": 0.8, "max_grad_norm": 0.01}),
    ],
)
def test_compiled_updates_of_impala_are_those_of_single_operations(environment, changes, harnesses, graphs):
    """Unrolls have resets and are some updates old: the ratios are not 1."""
    config = dataclasses.replace(IMPALA, queue_capacity=12, **changes)
    compiled, single = harnesses(impala, config, "CartPole-v1", environment)
    for _ in range(3):
        for one in (compiled, single):
            while one.client.can_insert("unrolls", 4):
                one.actor.act()
            for _ in range(3):
                one.learner.learn()
    require_same(compiled, single)
    assert compiled.learner.metrics()["oldest_in_updates"] > 0
    assert compiled.learner.metrics()["updates_compiled"] == 8
    assert len(graphs) == 1


@pytest.mark.long
@pytest.mark.parametrize("changes", [{}, {"burn_in": 0, "n_step": 1, "priority_clip": 0.5}])
def test_the_graph_of_r2d2_makes_the_update_of_its_fused_lstm(changes, make_harness):
    """Sequences are padded, and the online and target networks differ."""
    small = {"hidden": (8,), "lstm_units": 6, "sequence_length": 4, "sequence_period": 2, "burn_in": 3, "batch_size": 8}
    config = dataclasses.replace(r2d2.load_preset("CartPole-v1").config, num_actors=1, target_period=3)
    client, learner, (actor,), _ = make_harness(r2d2, config, "CartPole-v1", **{**small, **changes})
    client.configure("replay", rate_limiter=rate_limiters.MinSize(1))
    for _ in range(40):
        actor.act()
    inputs = {}

    def keep(columns, single):
        inputs.update(columns=columns, single=single)
        return single(columns)

    learner._updated = keep
    for _ in range(5):
        learner.learn()
    columns, single = inputs["columns"], inputs["single"]
    assert not columns["mask"].all()
    graph = tracing.trace(learner, columns, single)
    assert not any("lstm" in str(node.target) or "rnn" in str(node.target) for node in graph.module.graph.nodes)
    state = tracing.GraphState(learner)
    copies = [one.clone() for one in state.tensors]
    priorities, figures = Interpreted(graph, None).outputs(copies, state.factors().clone(), [], columns)
    expected, values = single(columns)
    for one, other in zip(copies, state.tensors, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(priorities, expected, rtol=1e-3, atol=1e-5)
    assert figures == pytest.approx({name: float(value) for name, value in values.items()})
