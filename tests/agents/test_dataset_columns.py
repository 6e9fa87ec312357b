"""Data sets whose columns or numbers are not those of the environment: refused with data set, column and row."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

import reverie  # noqa: E402
from reverie.agents import find  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.runners import plan  # noqa: E402

Box = spaces.Box
ROWS = 6
SPACES = {
    "Image": Box(0, 255, (12, 12, 3), np.uint8),
    "Shades": Box(0, 1, (12, 12, 3), np.float32),
    "Binary": Box(0, 1, (12, 12, 3), np.uint8),
    "Whole": Box(-100, 100, (3,), np.int64),
    "Bytes": Box(0, 255, (3,), np.uint8),
    "Numbers": Box(-1, 1, (3,), np.float32),
    "Choice": spaces.Discrete(4, start=2),
    "Nest": spaces.Dict({"a": Box(-1, 1, (2,)), "b": spaces.Tuple((Box(-1, 1, (3,)), spaces.Discrete(3)))}),
}


def registered(name, space, actions):
    class Still(gymnasium.Env):
        observation_space, action_space = space, actions

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return space.sample(), {}

        def step(self, action):
            return space.sample(), 0.0, True, False, {}

    gymnasium.register(f"ReverieStill{name}-v0", Still)


for one, its in SPACES.items():
    registered(one, its, spaces.Discrete(2))
registered("Reach", SPACES["Numbers"], Box(-2, 2, (2,), np.float32))


def drawn(shape=(), dtype=np.float32, high=1):
    return np.random.default_rng(0).uniform(0, high, (ROWS, *shape)).astype(dtype)


def written(tmp_path, **columns):
    """A file of one episode; a name with "__" is a nest."""
    steps = {
        "action": np.zeros(ROWS, np.int64),
        "reward": np.ones(ROWS, np.float32),
        "terminated": np.arange(ROWS) == ROWS - 1,
    }
    columns = {**steps, **{name.replace("__", "/"): column for name, column in columns.items()}}
    arrays = {name: (column.tolist() if column.ndim > 1 else column) for name, column in columns.items()}
    kinds = {name: pa.from_numpy_dtype(column.dtype) for name, column in columns.items() if column.ndim > 1}
    made = {}
    for name, array in arrays.items():
        kind = kinds.get(name)
        for _ in range(columns[name].ndim - 1):
            kind = pa.list_(kind)
        made[name] = pa.array(array, kind)
    pq.write_table(pa.table(made), tmp_path / "data.parquet")
    return str(tmp_path / "data.parquet")


def reader(name, path, agent="cql", environment=None, **changes):
    spec, agent = describe(f"ReverieStill{name}-v0", environment), find(agent)
    config = agent.load_preset("CartPole-v1" if agent.name == "cql" else "Pendulum-v1").config
    config = dataclasses.replace(config, dataset=path, learning_starts=1, **changes)
    (table,) = agent.make_tables(spec, config, seed=0)
    free = reverie.rate_limiters.MinSize(1)
    server = reverie.Server([table.replace(rate_limiter=free, sampler=reverie.selectors.Fifo())], listen=False)
    made = agent.make_actor(spec, config, server.client(), None, index=0, seed=0, watch=Stopwatch())
    made.server = server
    return made


def read(name, path, **options):
    one = reader(name, path, **options)
    for _ in range(ROWS):
        one.act()
    one._writer.flush()
    return one.server.client().sample_batch("replay", 1, timeout=5).data


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("Image", {"obs": drawn((3, 12, 12), np.uint8)}, r"has obs of shape \(3, 12, 12\), and .* has \(12, 12, 3\): "),
        ("Image", {"obs": drawn((432,), np.uint8, 255)}, r"has obs of shape \(432,\), and .* has \(12, 12, 3\): "),
        ("Image", {"obs": drawn((12, 12, 3))}, "has obs of dtype float32, and .* has images of uint8"),
        ("Shades", {"obs": drawn((12, 12, 3), np.uint8, 255)}, "has obs of dtype uint8, and .* has images of float32"),
        ("Choice", {"obs": np.array(["a"] * ROWS)}, r"has obs of dtype \S+, and .* has numbers"),
        ("Numbers", {"obs__a": drawn((3,))}, r"has obs/a, and .* has one array as obs: "),
        ("Numbers", {"obs": drawn((2, 3))}, r"has obs of shape \(2, 3\), and .* has \(3,\): .*frame_stack=2"),
        ("Choice", {"obs": drawn((3,), np.int64, 4)}, r"has obs of shape \(3,\), and .* has \(\): "),
        ("Nest", {"obs": drawn((5,))}, "has no obs/a, and .* has it"),
        ("Nest", {"obs__a": drawn((2,))}, "has no obs/b/0, and .* has it"),
        (
            "Nest",
            {"obs__a": drawn((3,)), "obs__b__0": drawn((3,)), "obs__b__1": drawn((), np.int64, 3)},
            r"has obs/a of shape \(3,\), and .* has \(2,\): ",
        ),
        ("Numbers", {"obs": drawn((3,)), "reward": np.array(["a"] * ROWS)}, "column 'reward' must be a number"),
        ("Numbers", {"obs": drawn((3,)), "truncated": np.array(["no"] * ROWS)}, "column 'truncated' must be a number"),
    ],
)
def test_columns_that_are_not_the_environments_are_refused_when_the_run_is_planned(name, columns, message, tmp_path):
    path = written(tmp_path, **columns)
    with pytest.raises(ValueError, match=message) as caught:
        reader(name, path)
    assert path in str(caught.value)
    agent = find("cql")
    config = dataclasses.replace(agent.load_preset("CartPole-v1").config, dataset=path)
    with pytest.raises(ValueError, match=message):
        plan(agent, f"ReverieStill{name}-v0", config=config)


def changed(column, value):
    column = column.copy()
    column[4] = value
    return column


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("Whole", {"obs": drawn((3,))}, r"row 0 \(from 0\): obs has 0\.\d+, which int64 cannot hold"),
        ("Bytes", {"obs": np.full((ROWS, 3), 300)}, "row 0 .*: obs has 300, which uint8 cannot hold"),
        ("Binary", {"obs": changed(drawn((12, 12, 3), np.uint8), 255)}, "row 4 .*: obs has 255, .* from 0 to 1"),
        ("Shades", {"obs": changed(drawn((12, 12, 3)), 7.5)}, r"row 4 .*: obs has 7\.5, .* from 0 to 1"),
        ("Choice", {"obs": changed(np.full(ROWS, 3), 6)}, "row 4 .*: obs has 6, .* from 2 to 5"),
        ("Choice", {"obs": changed(np.full(ROWS, 3), 0)}, "row 4 .*: obs has 0, .* from 2 to 5"),
        (
            "Nest",
            {"obs__a": drawn((2,)), "obs__b__0": changed(drawn((3,)), np.nan), "obs__b__1": drawn((), np.int64)},
            "row 4 .*: obs/b/0 has nan, .* must be finite",
        ),
        ("Numbers", {"obs": changed(drawn((3,)), np.nan)}, "row 4 .*: obs has nan, .* must be finite"),
        ("Numbers", {"obs": changed(drawn((3,), np.float64), 1e300)}, r"row 4 .*: obs has 1e\+300, .* must be finite"),
        (
            "Numbers",
            {"obs": drawn((3,)), "reward": changed(drawn(), -np.inf)},
            "row 4 .*: reward has -inf, .* must be finite",
        ),
    ],
)
def test_numbers_that_are_not_the_environments_are_refused_with_their_row(name, columns, message, tmp_path):
    path = written(tmp_path, **columns)
    with pytest.raises(UnsupportedEnvironmentError, match=message) as caught:
        read(name, path)
    assert path in str(caught.value)


def test_an_action_without_a_value_is_refused_with_its_row(tmp_path):
    path = written(tmp_path, obs=drawn((3,)), action=changed(drawn((2,)), np.nan))
    with pytest.raises(UnsupportedEnvironmentError, match=r"row 4 .*: action has nan, .* must be finite"):
        read("Reach", path, agent="iql")


def test_observations_that_fit_are_written_as_actors_write_them(tmp_path):
    image = drawn((12, 12, 3), np.uint8, 255)
    assert (read("Image", written(tmp_path, obs=image))["obs"][0] == image[0]).all()
    for whole in (np.float32, np.int64, np.int8):
        assert read("Whole", written(tmp_path, obs=np.full((ROWS, 3), 7, whole)))["obs"].tolist() == [[7, 7, 7]]
    for choice in (np.full(ROWS, 3), np.full((ROWS, 1), 3), np.full(ROWS, 3, np.float32)):
        assert read("Choice", written(tmp_path, obs=choice))["obs"].tolist() == [[1]], "counted from the start"
    nest = {"obs__a": drawn((2,), np.float64), "obs__b__0": drawn((3,), np.int64), "obs__b__1": drawn((), np.int32)}
    assert read("Nest", written(tmp_path, **nest, obs__more=drawn()))["obs"].dtype == np.uint8
    stacks = EnvSettings(frame_stack=2)
    assert read("Numbers", written(tmp_path, obs=drawn((2, 3))), environment=stacks)["obs"].shape == (1, 2, 3)


def ends(lengths, final, *, last_rows, terminated):
    """Flags of episodes of so many steps, and the number of their rows; an end at the last step of each if `final`."""
    flags, numbers = [], []
    for number, length in enumerate(lengths):
        flags += [*[False] * (length - 1), final, *[False] * last_rows]
        numbers += [number] * (length + last_rows)
    off = np.zeros(len(flags), bool)
    flags = np.array(flags)
    return np.array(numbers), *((flags, off) if terminated else (off, flags))


@pytest.mark.parametrize("terminated", [True, False], ids=["terminated", "cut off"])
@pytest.mark.parametrize("last_rows", [0, 1])
@pytest.mark.parametrize("final", [True, False], ids=["ended", "open"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_the_table_needs_room_for_the_items_of_a_data_set_and_not_for_its_rows(
    n_step, final, last_rows, terminated, tmp_path
):
    numbers, over, cut = ends((3, 1, 4), final, last_rows=last_rows, terminated=terminated)
    rows = len(numbers)
    columns = {"action": np.zeros(rows, np.int64), "reward": np.ones(rows, np.float32)}
    columns |= {"obs": np.zeros((rows, 3), np.float32), "terminated": over, "truncated": cut, "episode": numbers}
    path = written(tmp_path, **columns)
    one = reader("Numbers", path, n_step=n_step)
    one._writer.flush()
    for _ in range(rows if not (final and last_rows) else rows - 3):
        one.act()
    one._writer.flush()
    items = one.server.client().info().tables["replay"].current_size
    reader("Numbers", path, n_step=n_step, capacity=items)
    with pytest.raises(ValueError, match=rf"capacity is {items - 1}, and .* has {rows} rows, which make {items} items"):
        reader("Numbers", path, n_step=n_step, capacity=items - 1)


def rows_of_reach(tmp_path, actions):
    rows = len(actions)
    columns = {"obs": np.zeros((rows, 3), np.float32), "reward": np.ones(rows, np.float32)}
    return written(tmp_path, **columns, action=np.array(actions), terminated=np.arange(rows) == rows - 1)


@pytest.mark.parametrize("end", ["the first rows are read", "all rows are read", "the run ends"])
def test_actions_outside_of_the_space_are_clipped_with_one_warning_of_how_many(end, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("reverie.agents.dataset_columns.FIRST_ROWS", 4 if end == "the first rows are read" else 1000)
    one = reader(
        "Reach", rows_of_reach(tmp_path, [[0.0, 2.0], [-5.0, 0.0], [0.0, 2.0001], [3.0, 9.0], [7.0, 0.0]]), "iql"
    )
    for _ in range(4):
        one.act()
    assert len(caplog.records) == (end == "the first rows are read")
    for _ in range(0 if end == "the run ends" else 8):
        one.act()
    one.close()
    (record,) = caplog.records
    seen = {"the first rows are read": "2 of 4 rows", "all rows are read": "3 of 5 rows", "the run ends": "2 of 4 rows"}
    assert f"{seen[end]} have actions outside of Box(-2.0, 2.0, (2,), float32)" in record.getMessage()
    assert "from -5 to 9, which are clipped" in record.getMessage()
    assert str(tmp_path) in record.getMessage()


def test_actions_within_the_space_but_for_rounding_errors_give_no_warning(tmp_path, caplog):
    one = reader("Reach", rows_of_reach(tmp_path, [[2.0, -2.0], [2.0001, -2.0001]]), "iql")
    for _ in range(5):
        one.act()
    one.close()
    assert not caplog.records


def test_a_run_that_has_finished_reports_its_result_again_without_its_data_set(tmp_path):
    path = written(tmp_path, obs=drawn((3,)))
    settings = {"max_env_steps": ROWS, "learning_starts": 2, "screening_episodes": 1, "confirmation_episodes": 1}
    options = {"dataset": path, "folder": tmp_path / "run", "hidden": [8], **settings}
    first = reverie.train("cql", "ReverieStillNumbers-v0", **options)
    (tmp_path / "data.parquet").unlink()
    again = reverie.train("cql", "ReverieStillNumbers-v0", resume=True, **options)
    assert (again.env_steps, again.evaluation) == (first.env_steps, first.evaluation)
    with pytest.raises(FileNotFoundError, match=r"data\.parquet"):
        reverie.train("cql", "ReverieStillNumbers-v0", resume=True, **(options | {"max_env_steps": 2 * ROWS}))
