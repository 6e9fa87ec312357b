"""Notes about runs in which hindsight adds items, and `samples_per_insert` counts them."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.goal_tasks import BIT_FLIPS, REACH
from reverie.agents.presets import changed
from reverie.runners import plan
from reverie.runners.planning.relabelling import relabelling_note


def note(name, env_id, path=None, **changes):
    agent = agents.find(name)
    preset = changed(agent.load_preset(env_id, path), {"batch_size": 64, **changes})
    return plan(agent, env_id, preset=preset).note


def test_hindsight_with_the_ratio_of_the_preset_is_noted_with_the_number_of_updates_and_the_setting_to_change():
    ratio = agents.find("dqn").load_preset(BIT_FLIPS).config.samples_per_insert
    assert note("dqn", BIT_FLIPS, her="future") == (
        f"her adds 4 items for each step, and samples_per_insert counts them: the run makes {5 * ratio / 64:.3g}"
        f" updates for each environment step, 5 times as many as without her; samples_per_insert={ratio / 5:g}"
        f" in place of {ratio:g} would keep their number"
    )
    assert "her adds 2 items for each step, " in note("dqn", BIT_FLIPS, her="final", her_k=2)


def test_a_preset_that_was_made_for_hindsight_has_no_note():
    config = agents.find("dqn").load_preset(BIT_FLIPS).config
    own = dataclasses.replace(config, her="future")
    assert relabelling_note(own, (config,)) != ""
    assert relabelling_note(own, (own,)) == ""
    assert relabelling_note(config, (config,)) == ""


@pytest.mark.parametrize(("name", "env_id"), [("dqn", BIT_FLIPS), ("sac", REACH)])
def test_another_ratio_and_a_run_without_hindsight_have_no_note(name, env_id):
    ratio = agents.find(name).load_preset(env_id).config.samples_per_insert
    own = {"normalise_rewards": False} if name == "sac" else {}
    assert "her adds 4 items" in note(name, env_id, her="future", **own)
    assert note(name, env_id, her="future", samples_per_insert=ratio / 5, **own) == ""
    assert note(name, env_id) == ""
