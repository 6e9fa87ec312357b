"""The space of `reverie search`: read from flags and files, and refused by the names of settings."""

import warnings

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from reverie.agents.dqn import agent as dqn
from reverie.agents.presets import PresetError
from reverie.cli.search_space import Choices, Range, combination, key, read, size

PRESET = dqn.load_preset("CartPole-v1")


def test_a_space_is_read_from_flags_with_the_names_that_other_libraries_have():
    flags = ["lr=log:1e-4:1e-2", "batch_size=choice:32,64,128", "n_step=int:1:5", "capacity=int:1000:9000:2000"]
    flags += ["gamma=float:0.9:0.99:0.01", "learning_starts = logint:16:512", "hidden=choice:[64],[64, 64]"]
    assert read(None, flags, PRESET) == {
        "learning_rate": Range(1e-4, 1e-2, log=True),
        "batch_size": Choices(("32", "64", "128")),
        "n_step": Range(1, 5, integer=True),
        "capacity": Range(1000, 9000, integer=True, step=2000),
        "discount": Range(0.9, 0.99, step=0.01),
        "learning_starts": Range(16, 512, integer=True, log=True),
        "hidden": Choices(("[64]", "[64, 64]")),
    }


def test_settings_of_the_environment_are_searched_too():
    flags = ["frame_stack=int:1:4", "normalise_observations=choice:true,false"]
    space = {"frame_stack": Range(1, 4, integer=True), "normalise_observations": Choices(("true", "false"))}
    assert read(None, flags, PRESET) == space


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "space.toml",
            'n_step = "int:1:5"\nbatch_size = [32, 64]\nhidden = {choices = [[64], [64, 64]]}\n'
            '[learning_rate]\ntype = "log"\nlow = 1e-4\nhigh = 1e-2\n',
        ),
        (
            "space.yaml",
            "n_step: int:1:5\nbatch_size: [32, 64]\nhidden:\n  choices: [[64], [64, 64]]\n"
            "learning_rate:\n  type: log\n  low: 1e-4\n  high: 1e-2\n",
        ),
    ],
)
def test_a_file_has_the_same_ranges_and_flags_win(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    space = {
        "n_step": Range(1, 3, integer=True),
        "batch_size": Choices(("32", "64")),
        "hidden": Choices(("[64]", "[64, 64]")),
        "learning_rate": Range(1e-4, 1e-2, log=True),
    }
    assert read(tmp_path / name, ["n_step=int:1:3"], PRESET) == space


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("n_stp=int:1:5", "has no setting 'n_stp'; did you mean n_step?"),
        ("n_step", "'n_step' is not a range of a setting: write NAME=log:LOW:HIGH"),
        ("n_step=1:5", "n_step is '1:5': write NAME=log:LOW:HIGH"),
        ("n_step=int:5", "n_step is 'int:5': write"),
        ("n_step=int:1:5:1:1", "n_step is 'int:1:5:1:1': write"),
        ("n_step=int:5:1", "n_step goes from 5 to 1: the first must be below the second"),
        ("n_step=int:1:2.5", "n_step has 2.5, and is a range of integers"),
        ("n_step=int:one:5", "n_step has 'one', and must have numbers"),
        ("lr=log:0:1", "lr goes from 0 on: a logarithmic range begins above 0"),
        ("lr=log:1e-4:1e-2:1e-3", "lr has the step 1e-3: it must be above 0, and a logarithmic range has none"),
        ("discount=float:0:0.9:0", "discount has the step 0: it must be above 0"),
        ("lr=float:0:inf", "lr has 'inf', and must have numbers"),
        ("batch_size=choice:32", "batch_size has the choices [32]: give two or more, each once"),
        ("batch_size=choice:32,32", "give two or more, each once"),
        ("batch_size=choice:32,many", "[agent] batch_size is 'many', and must be an int"),
        ("n_step=int:0:5", "n_step is 0, and must be at least 1"),
        ("n_step=float:1.5:5", "n_step takes integers: write n_step=int:LOW:HIGH, or logint for a logarithmic range"),
        ("batch_size=log:16:128", "batch_size takes integers: write batch_size=int:LOW:HIGH, or logint for"),
        ("time_limit=float:50:100:5", "time_limit takes integers: write time_limit=int:LOW:HIGH, or logint for"),
    ],
)
def test_an_invalid_range_is_refused_by_its_setting(flag, words):
    with pytest.raises(ValueError) as error:
        read(None, [flag], PRESET)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("n_step", "is not TOML"),
        ('learning_rate = "log:1e-4:1e-2"\nlr = "log:1e-4:1e-2"', "lr is another name of learning_rate"),
        ("n_step = 3", "n_step is 3: write NAME=log:LOW:HIGH"),
        ("n_step = {low = 1, high = 5}", "n_step has no type: a range has type, low and high, and may have step"),
        ('n_step = {type = "int", low = 1, hihg = 5}', "n_step has no high: a range has"),
        ('n_step = {type = "int", low = 1, high = 5, every = 2}', "n_step has an unknown every: a range has"),
        ('n_step = {type = "integer", low = 1, high = 5}', "n_step has the type 'integer', and must have one of log"),
        ("n_step = {choices = 3}", "choices are a list, and take nothing else"),
        ('n_step = {type = "int", low = true, high = 5}', "n_step has True, and must have numbers"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path, text, words):
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(ValueError) as error:
        read(tmp_path / "space.toml", [], PRESET)
    assert words in str(error.value)


def test_a_finite_space_has_a_number_of_combinations_and_each_differs():
    space = read(None, ["n_step=int:1:6:2", "gamma=float:0.9:0.99:0.03", "batch_size=choice:32,64"], PRESET)
    assert size(space) == 3 * 4 * 2
    every = [combination(space, index) for index in range(24)]
    assert every[0] == {"n_step": 1, "discount": 0.9, "batch_size": "32"}
    assert every[-1] == {"n_step": 5, "discount": 0.99, "batch_size": "64"}
    assert len({key(space, one) for one in every}) == 24
    assert key(space, every[-1]) == key(space, {**every[-1], "discount": 0.9 + 3 * 0.03}), "rounding makes no other one"
    with warnings.catch_warnings(action="error"):  # Optuna warns of a last value that no step reaches
        distributions = {name: part.distribution() for name, part in space.items()}
    for name, found in distributions.items():
        assert all(found._contains(found.to_internal_repr(one[name])) for one in every)


def test_a_space_with_a_continuous_range_has_no_number_of_combinations():
    assert size(read(None, ["n_step=int:1:5", "gamma=float:0.9:0.99"], PRESET)) is None
    assert size(read(None, ["learning_starts=logint:2:4"], PRESET)) == 3


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("lr=log:1e-4:1e-2", "lr has no steps, and --sampler grid tries each value: write lr=choice:ONE,TWO"),
        ("gamma=float:0.9:0.99", "gamma has no steps, and --sampler grid tries each value: write gamma=choice:ONE,TWO"),
        ("gamma=float:0.9:0.99", "or gamma=float:LOW:HIGH:STEP"),
        ("learning_starts=logint:16:512", "or learning_starts=int:LOW:HIGH:STEP"),
    ],
)
def test_a_grid_takes_no_range_without_steps(flag, words):
    with pytest.raises(ValueError) as error:
        read(None, [flag], PRESET, grid=True)
    assert words in str(error.value)


def test_a_file_of_another_kind_is_refused(tmp_path):
    for name, text, words in (
        ("space.json", "{}", "must be a .toml or a .yaml"),
        ("space.yaml", "a: [", "is not YAML"),
        ("space.yaml", "- a", "has no names of settings"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=words):
            read(tmp_path / name, [], PRESET)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("network=choice:reverie:Server,reverie:Nope", r"with network=reverie:Nope: .*cannot be imported.* 'Nope'"),
        ("network=choice:none_such:Net,reverie:Server", r"with network=none_such:Net: .* No module named 'none_such'"),
        ('wrappers=choice:[],["reverie:Nope"]', r"with wrappers=\[.*reverie:Nope.*: .*cannot be imported"),
        ('wrappers=choice:[],["reverie:__version__"]', r"must be a function or class"),
    ],
)
def test_networks_and_wrappers_that_cannot_be_imported_are_refused_before_anything_runs(flag, words):
    with pytest.raises(PresetError, match=words):
        read(None, [flag], PRESET)


def test_networks_and_wrappers_that_can_be_imported_are_searched():
    wrappers = "gymnasium.wrappers:DelayObservation(delay=1)"
    found = read(None, ["network=choice:reverie:Server,reverie:Client", f"wrappers=choice:[],['{wrappers}']"], PRESET)
    assert found["network"] == Choices(("reverie:Server", "reverie:Client"))
    assert found["wrappers"].texts == ("[]", f'["{wrappers}"]')
