"""Environments of packages that register them through entry points, which Gymnasium itself does not load."""

import importlib
import warnings

import pytest

pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")

from reverie.agents import env_plugins  # noqa: E402
from reverie.agents.environments import UnknownEnvironmentError, describe, make_vector  # noqa: E402

GAMES = """
import gymnasium

def register_all():
    gymnasium.register("Arcade/Grid-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package with a plugin; gives a function for more of them."""

    def install(name, module, entry):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{env_plugins.GROUP}]\n{name} = {entry}\n")
        (tmp_path / f"{name}.py").write_text(module)

    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    env_plugins._register_all.cache_clear()
    install("arcade_games", GAMES, "arcade_games:register_all")
    yield install
    env_plugins._register_all.cache_clear()
    gymnasium.registry.pop("Arcade/Grid-v0", None)


def test_an_environment_of_an_installed_plugin_is_found_by_its_id(installed):
    assert describe("Arcade/Grid-v0").num_actions == 2
    gymnasium.registry.pop("Arcade/Grid-v0")
    env_plugins._register_all.cache_clear()  # as in the process of an actor, which makes environments at once
    envs = make_vector("Arcade/Grid-v0", 2)
    assert envs.num_envs == 2
    envs.close()


def test_its_names_are_suggested(installed):
    with pytest.raises(UnknownEnvironmentError) as caught:
        describe("Arcade/Grids-v0")
    assert "Arcade/Grid-v0" in str(caught.value)


def test_a_plugin_that_fails_is_a_warning_and_the_others_are_registered(installed):
    installed("aa_broken", "raise RuntimeError('no licence')", "aa_broken:register")
    with pytest.warns(UserWarning, match="aa_broken:register cannot be registered: RuntimeError: no licence"):
        assert describe("Arcade/Grid-v0").num_actions == 2


def test_plugins_are_not_loaded_for_an_environment_that_is_there(installed):
    installed("aa_broken", "raise RuntimeError('no licence')", "aa_broken:register")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        describe("CartPole-v1")
        with pytest.raises(UnknownEnvironmentError, match="has no version"):
            describe("CartPole")
        env_plugins.register_for("ALE/Pong-v5")  # registered later, by a package that has no plugin
    assert "Arcade/Grid-v0" not in gymnasium.registry
