"""Numbers that change during a run by its counts, and their way into its logs."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import reverie
from reverie import agents
from reverie.agents.dqn.learner import Learner
from reverie.agents.presets import changed
from reverie.runners import Progress, plan
from reverie.runners.reports.calls import DirectCalls
from reverie.runners.reports.run_progress import FIGURES, RunProgress
from reverie.runners.reports.scalar_logs import ScalarLog

SMALL = {"hidden": [8], "batch_size": 8, "learning_starts": 50, "screening_episodes": 1, "confirmation_episodes": 1}


def scheduled(name, env_steps, updates, **settings):
    agent = agents.find(name)
    preset = agent.load_preset("Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1")
    return changed(preset, settings).config.scheduled(env_steps, updates)


FALLING = {"epsilon_start": 1.0, "epsilon_end": 0.0, "epsilon_steps": 100}
ALONE = {"num_actors": 1, "envs_per_actor": 1, "epsilon_base": 0.5, "epsilon_alpha": 1.0, "single_env_decay_steps": 100}
RISING = {"importance_exponent": 0.0, "importance_anneal_updates": 40}
CASES = [
    ("dqn", FALLING, {"epsilon": 0.75}),
    ("gorila", FALLING, {"epsilon": 0.75}),
    ("cql", FALLING, {"epsilon": 0.75}),
    ("cql", {**FALLING, "dataset": "file", "num_actors": 1, "envs_per_actor": 1}, {}),
    ("rainbow", {**FALLING, "noisy": False}, {"epsilon": 0.75}),
    ("rainbow", FALLING, {}),
    ("apex-dqn", {}, {}),
    ("apex-dqn", ALONE, {"epsilon": 0.5**1.25}),
    ("r2d2", ALONE, {"epsilon": 0.5**1.25}),
    ("ppo", {"clip": 0.2, "anneal_updates": 40, "noise_theta": 0.5}, {"clip": 0.2 * 0.75}),
    ("ppo", {"anneal_updates": 40, "anneal_clip": False}, {}),
    ("ppo", {"anneal_updates": 0, "noise_theta": 0.5, "noise_theta_steps": 26}, {"noise_theta": 0.5}),
    ("sac", {"noise_theta": 0.5, "noise_theta_steps": 25}, {"noise_theta": 1.0}),
    ("td3", {**RISING, "prioritized": True}, {"importance_exponent": 0.25}),
    ("td3", RISING, {}),
    ("apex-dpg", RISING, {"importance_exponent": 0.25}),
    ("sac", {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "found"), CASES)
def test_numbers_that_change_are_those_of_the_last_step_and_the_last_update(name, settings, found):
    assert scheduled(name, 25, 11, **settings) == pytest.approx(found)


@pytest.mark.parametrize("runner", ["local", pytest.param("process", marks=pytest.mark.long)])
def test_a_run_has_them_in_its_progress_its_log_and_its_scalars(runner, tmp_path):
    class Sink:
        where = ""

        def __init__(self):
            self.rows = []

        def begin(self, run):
            """Nothing to begin."""

        def add_scalars(self, step, scalars):
            self.rows.append((step, scalars))

        def add_summary(self, step, summary):
            """Not of interest."""

    sink, events = Sink(), []
    reverie.train(
        "dqn",
        "CartPole-v1",
        **SMALL,
        max_env_steps=300,
        epsilon_start=1.0,
        epsilon_end=0.0,
        epsilon_steps=1_000,
        folder=tmp_path,
        runner=runner,
        on_event=[ScalarLog(sink, "sink", DirectCalls()), events.append],
    )
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert last.schedules == {"epsilon": pytest.approx(1 - last.env_steps / 1_000)}
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    for line in (line for line in lines if line["event"] == "progress"):
        assert line["schedules"]["epsilon"] == pytest.approx(1 - line["env_steps"] / 1_000)
    shown = {step: row["schedule/epsilon"] for step, row in sink.rows if "schedule/epsilon" in row}
    assert shown[last.env_steps] == last.schedules["epsilon"]
    assert any("speed/updates_per_second" in row for _, row in sink.rows)


def test_an_agent_whose_settings_are_of_another_kind_has_none():
    @dataclasses.dataclass
    class Own:
        rate: float = 0.5

    agent = agents.find("dqn")
    topology = dataclasses.replace(plan(agent, "CartPole-v1"), config=Own())
    assert RunProgress(topology).progress({}, dict.fromkeys(FIGURES, 0.0)).schedules == {}


class Own(agents.find("dqn").config):
    """Settings with a number of a class that JSON has not."""

    def scheduled(self, env_steps, updates):
        return {**super().scheduled(env_steps, updates), "mine": self.number(env_steps)}

    number = np.float32


def test_numbers_of_numpy_and_pytorch_reach_the_log_and_others_are_refused_before_a_run(tmp_path, monkeypatch):
    agent = dataclasses.replace(agents.find("dqn"), config=Own)
    for number in (np.float32, torch.tensor):
        monkeypatch.setattr(Own, "number", staticmethod(number))
        folder = tmp_path / number.__name__
        result = reverie.train(agent, "CartPole-v1", **SMALL, max_env_steps=60, folder=folder)
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        assert [line["schedules"]["mine"] for line in lines if line["event"] == "progress"][-1] == result.env_steps
    monkeypatch.setattr(Own, "number", lambda *counts: None)
    with pytest.raises(TypeError, match=r"Own\.scheduled has None for 'mine', and must have numbers"):
        plan(agent, "CartPole-v1")


class NumPyLearner(Learner):
    """One whose metrics have scalars of NumPy and of PyTorch."""

    def metrics(self):
        return {**super().metrics(), "half": np.float32(0.5), "third": torch.tensor(3)}


def test_metrics_of_numpy_and_pytorch_reach_the_log_the_result_and_the_checkpoint(tmp_path):
    agent = dataclasses.replace(agents.find("dqn"), make_learner=NumPyLearner)
    result = reverie.train(agent, "CartPole-v1", **SMALL, max_env_steps=60, folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    again = reverie.train(agent, "CartPole-v1", folder=tmp_path, resume=True)
    for learner in ([line for line in lines if line["event"] == "progress"][-1]["learner"], again.learner):
        assert learner == result.learner
        assert (learner["half"], learner["third"]) == (0.5, 3)
