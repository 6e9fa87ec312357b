"""Runs that `should_stop` ends: their last policy, with a folder and without."""

import pickle

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie.runners import Progress, StoppedError, train

SHORT = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "evaluate_every": 100,
    "screening_episodes": 1,
    "confirmation_episodes": 1,
    "max_env_steps": 150,
}


@pytest.mark.parametrize("runner", ["local", pytest.param("process", marks=pytest.mark.long)])
def test_a_run_that_is_stopped_without_a_folder_gives_its_last_policy(runner):
    newest = []

    def watch(event):
        if isinstance(event, Progress) and event.updates >= 10:
            newest.append(event)

    with pytest.raises(StoppedError, match="nothing was saved") as caught:
        train(
            "dqn",
            "CartPole-v1",
            **{**SHORT, "max_env_steps": 10**6, "evaluate_every": 10**6},
            runner=runner,
            on_event=watch,
            should_stop=lambda: bool(newest),
        )
    stopped = caught.value
    assert stopped.__notes__ == ["the last weights are in its `policy`"]
    policy = stopped.policy
    assert policy.run.env_steps == stopped.env_steps > 0
    assert policy.run.updates >= newest[0].updates
    assert policy is stopped.policy, "whose sampled actions go on"
    assert "policy" not in vars(pickle.loads(pickle.dumps(stopped))), "it is made of the weights, where it is needed"
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    assert (pickle.loads(pickle.dumps(stopped)).policy(observations) == policy(observations)).all()
    begun = train("dqn", "CartPole-v1", **{**SHORT, "max_env_steps": 1}).policy
    assert (begun.q_values(observations) != policy.q_values(observations)).any(), "it has learnt"


def test_a_stopped_run_with_a_folder_has_the_policy_of_its_checkpoint(tmp_path):
    with pytest.raises(StoppedError, match="saved as") as caught:
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, should_stop=lambda: True)
    saved = reverie.load_policy(caught.value.checkpoint)
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    assert (caught.value.policy.q_values(observations) == saved.q_values(observations)).all()
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("runner", ["local", pytest.param("process", marks=pytest.mark.long)])
def test_a_run_that_is_stopped_before_its_first_step_has_nothing_to_point_to(runner):
    with pytest.raises(StoppedError, match="after 0 environment steps; nothing was saved") as caught:
        train("dqn", "CartPole-v1", **SHORT, runner=runner, should_stop=lambda: True)
    assert not hasattr(caught.value, "__notes__")
    assert caught.value.policy is None or caught.value.policy.run.updates == 0
