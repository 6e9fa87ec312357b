"""The steps at which evaluations and checkpoints of a run are due."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie.agents.core import RunSettings
from reverie.agents.dqn import agent as dqn
from reverie.runners import Evaluation, plan
from reverie.runners.reports.run_progress import RunProgress

RUN = RunSettings(None, 10_000, evaluate_every=50, checkpoint_every=60)


def progress(**changes):
    config = dqn.load_preset("CartPole-v1").config
    return RunProgress(plan(dqn, "CartPole-v1", config=config, run=dataclasses.replace(RUN, **changes)))


def due_at(account, name, steps):
    """The steps at which a run that arrives at `steps`, one after the other, finds `name` due."""
    found = []
    for account.env_steps in steps:
        if getattr(account, name):
            found.append(account.env_steps)
    return found


@pytest.mark.parametrize(("name", "every"), [("evaluation_due", 50), ("checkpoint_due", 60)])
def test_each_multiple_is_due_once(name, every):
    assert due_at(progress(), name, range(301)) == list(range(every, 301, every))


@pytest.mark.parametrize(("name", "expected"), [("evaluation_due", [48, 96, 144]), ("checkpoint_due", [64, 128, 192])])
def test_a_vector_of_environments_passes_multiples_and_the_next_one_stays_a_multiple(name, expected):
    account = progress(evaluate_every=48)
    assert due_at(account, name, range(0, 193, 16))[:3] == expected


@pytest.mark.parametrize("name", ["evaluation_due", "checkpoint_due"])
def test_those_that_were_missed_are_left_out(name):
    """An evaluation of 500 steps, or a disk as slow, leaves one due, not ten."""
    assert due_at(progress(), name, [60, 565, 566, 567, 599, 600]) == [60, 565, 600]


def test_a_resumed_run_owes_no_evaluation_that_was_missed_but_the_one_under_way():
    account = progress()
    assert due_at(account, "evaluation_due", [50, 565]) == [50, 565]
    state = account.state_dict()
    resumed = progress()
    resumed.load_state_dict(state)
    assert due_at(resumed, "evaluation_due", [565, 566, 599, 600]) == [565, 600]


def test_a_run_whose_evaluation_ended_is_resumed_with_none_due():
    account = progress()
    due_at(account, "evaluation_due", [50, 565])
    account.evaluated(565, Evaluation((1,), (1.0,)), None)
    resumed = progress()
    resumed.load_state_dict(account.state_dict())
    assert due_at(resumed, "evaluation_due", [565, 599, 600]) == [600]


def test_a_debt_in_a_checkpoint_is_one_evaluation():
    state = {**progress().state_dict(), "env_steps": 1_020, "next_evaluation": 50}
    for every in (50, 70):
        resumed = progress(evaluate_every=every)
        resumed.load_state_dict(state)
        assert len(due_at(resumed, "evaluation_due", [1_020, 1_021, 1_022])) == 1


def test_a_finished_run_that_trains_on_is_next_due_after_the_step_at_which_it_ended():
    account, evaluation = progress(), Evaluation((1,), (1.0,))
    account.env_steps = 120
    account.evaluated(120, evaluation, None)
    account.end(evaluation, {}, {})
    resumed = progress()
    resumed.load_state_dict(account.state_dict())
    assert due_at(resumed, "evaluation_due", range(120, 201)) == [150, 200]
    assert due_at(resumed, "checkpoint_due", range(120, 201)) == [180]
