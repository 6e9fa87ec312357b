"""The updates that a run compiles, and settings that are refused before it begins."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.core import CompilePlan, RunSettings
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import EnvSpec, describe
from reverie.agents.observations import ObservationLeaf
from reverie.runners.planning.compiling import (
    BEGIN,
    BEGIN_ON_UNROLLS,
    RECORD_FROM,
    USE_FROM,
    USE_FROM_ON_UNROLLS,
    compile_plan,
)

RUN = RunSettings(target_return=1.0, max_env_steps=1, evaluate_every=1)


@pytest.mark.parametrize(
    ("name", "changes", "runner", "plan"),
    [
        ("dqn", {}, "local", CompilePlan(BEGIN, USE_FROM, required=False)),
        ("dqn", {}, "process", CompilePlan(BEGIN, None, required=False)),
        ("dqn", {"compile": "on"}, "local", CompilePlan(0, 1, required=True)),
        ("dqn", {"compile": "off"}, "local", None),
        ("dqn", {"device": "cuda"}, "process", CompilePlan(RECORD_FROM, RECORD_FROM, required=False)),
        ("dqn", {"device": "cuda:1", "compile": "on"}, "local", CompilePlan(RECORD_FROM, RECORD_FROM, required=True)),
        ("dqn", {"device": "cuda", "compile": "off"}, "process", None),
        ("cql", {}, "local", CompilePlan(BEGIN, USE_FROM, required=False)),
        ("cql", {"device": "cuda"}, "process", CompilePlan(RECORD_FROM, RECORD_FROM, required=False)),
        ("r2d2", {"device": "cuda"}, "process", None),
        ("ppo", {}, "local", CompilePlan(BEGIN_ON_UNROLLS, USE_FROM_ON_UNROLLS, required=False)),
        ("r2d2", {}, "local", CompilePlan(BEGIN_ON_UNROLLS, USE_FROM_ON_UNROLLS, required=False)),
        ("impala", {}, "process", CompilePlan(BEGIN_ON_UNROLLS, None, required=False)),
        ("gorila", {}, "local", None),
    ],
)
def test_the_plan_of_a_run(name, changes, runner, plan):
    run, agent = dataclasses.replace(RUN, **changes), agents.find(name)
    config = agent.load_preset("CartPole-v1").config
    assert compile_plan(agent, config, describe("CartPole-v1"), run, runner) == plan


def test_images_of_grids_are_compiled_and_larger_ones_are_not():
    agent = agents.find("dqn")
    grid = ObservationLeaf((), "image", (10, 10, 4), "bool")
    grids = EnvSpec("MinAtar/Breakout-v0", (10, 10, 4), "bool", 6, "Discrete(6)", None, leaves=(grid,))
    frames = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4)
    own = dataclasses.replace(grids, settings=EnvSettings(network="somewhere:layers"))
    config = agent.load_preset("CartPole-v1").config
    wide = dataclasses.replace(grids, obs_shape=(10, 40, 4), leaves=(dataclasses.replace(grid, shape=(10, 40, 4)),))
    plans = [compile_plan(agent, config, spec, RUN, "local") for spec in (grids, frames, own, wide)]
    assert plans == [CompilePlan(BEGIN, USE_FROM, required=False), None, None, None]
    r2d2 = agents.find("r2d2")
    assert compile_plan(r2d2, r2d2.load_preset("CartPole-v1").config, grids, RUN, "local") is None


def test_a_run_that_must_compile_and_cannot_is_refused_before_it_begins(monkeypatch):
    spec, on = describe("CartPole-v1"), dataclasses.replace(RUN, compile="on")
    with pytest.raises(ValueError, match="compile is 'on', and the updates of gorila are not made to be compiled"):
        compile_plan(agents.find("gorila"), None, spec, on, "local")
    r2d2, config = agents.find("r2d2"), agents.find("r2d2").load_preset("CartPole-v1").config
    with pytest.raises(ValueError, match="and the updates of r2d2 are not made to be recorded on a GPU"):
        compile_plan(r2d2, config, spec, dataclasses.replace(on, device="cuda"), "local")
    with pytest.raises(ValueError, match="and r2d2 is not compiled with more than 40 rows in a sequence, here 121"):
        compile_plan(r2d2, dataclasses.replace(config, burn_in=40, sequence_length=80), spec, on, "local")
    for name in ("ppo", "impala"):
        agent = agents.find(name)
        lstm = dataclasses.replace(agent.load_preset("CartPole-v1").config, lstm_units=8)
        with pytest.raises(ValueError, match=f"compile is 'on', and {name} is not compiled with an LSTM"):
            compile_plan(agent, lstm, spec, on, "local")
        assert compile_plan(agent, lstm, spec, RUN, "local") is None
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match="compile is 'on', and there is no C\\+\\+ compiler 'no-such-compiler'"):
        compile_plan(agents.find("dqn"), None, spec, on, "local")
    with pytest.raises(ValueError, match='compile is \'yes\', and must be "off" or "auto" or "on"'):
        dataclasses.replace(RUN, compile="yes")
