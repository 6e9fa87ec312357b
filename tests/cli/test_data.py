import io
import json
import signal

import numpy as np
import pytest

testing = pytest.importorskip("typer.testing")
pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import reverie  # noqa: E402
from reverie import Server, Table, selectors  # noqa: E402
from reverie.checkpointers import DefaultCheckpointer  # noqa: E402
from reverie.cli import data  # noqa: E402
from reverie.cli.app import app  # noqa: E402
from reverie.integrations.datasets import export_table  # noqa: E402


def run(*arguments):
    return testing.CliRunner().invoke(app, ["data", *map(str, arguments)])


def last(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def table(name):
    return Table(name, selectors.Uniform(), selectors.Fifo(), 1000)


@pytest.fixture
def episodes(tmp_path):
    """A Parquet file with two episodes of four steps and a last observation."""
    with Server([table("t")], listen=False) as server:
        client = server.client()
        with client.episode_writer("t") as writer:
            for _ in range(2):
                for step in range(5):
                    data = {"obs": np.full(3, step, np.float32), "action": step, "reward": float(step)}
                    writer.append({**data, "terminated": step == 3, "truncated": False})
                writer.end_episode()
        export_table(client, "t", tmp_path / "episodes.parquet")
    return tmp_path / "episodes.parquet"


@pytest.fixture
def server():
    with Server([table("replay"), table("other")]) as server:
        yield server


def test_import_fills_a_table_of_a_server_that_export_writes_again(server, episodes, tmp_path):
    result = run("import", episodes, "--server", server.address, "--table", "replay")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        f"2 episodes from 10 rows (300 B) of {episodes} into table 'replay', which has 2 items"
    )
    found = last(run("export", server.address, tmp_path / "again.parquet", "--table", "replay", "--json"))
    assert (found["items"], found["rows"], found["as"], found["stopped_by"]) == (2, 10, "episodes", None)
    assert found["file_bytes"] == (tmp_path / "again.parquet").stat().st_size
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "again.parquet").equals(pq.read_table(episodes))


def test_transitions_sequences_and_limits_are_flags(server, episodes):
    place = ("--server", server.address, "--table", "replay", "--json")
    found = last(run("import", episodes, *place, "--as", "transitions", "--n-step", "2", "--discount", "0.5"))
    assert (found["items"], found["items_in_table"]) == (8, 8)
    place = ("--server", server.address, "--table", "other", "--json")
    found = last(run("import", episodes, *place, "--as", "sequences", "--length", "2", "--max-episodes", "1"))
    assert (found["items"], found["stopped_by"]) == (3, "max_episodes")


def test_a_checkpoint_is_filled_served_and_exported(episodes, tmp_path):
    folder = tmp_path / "saved"
    for _ in range(2):
        found = last(run("import", episodes, "--checkpoints", folder, "--table", "offline", "--json"))
    assert found["items_in_table"] == 4, "the second import adds to the first"
    with Server([table("offline")], checkpointer=DefaultCheckpointer(folder), listen=False) as server:
        assert server.client().server_info()["offline"].current_size == 4
    files = sorted(path.name for path in folder.iterdir())
    assert last(run("export", folder, tmp_path / "x.parquet", "--table", "offline", "--json"))["items"] == 4
    assert sorted(path.name for path in folder.iterdir()) == files, "an export leaves the checkpoints as they are"


def test_an_import_into_a_journals_folder_is_refused_where_a_checkpoint_would_lose_commits(episodes, tmp_path):
    folder = tmp_path / "journal"
    with Server([table("offline")], journal=reverie.Journal(folder), listen=False) as server:
        server.client().insert_batch("offline", {"x": np.arange(3)})
    files = sorted(folder.iterdir())
    refused = run("import", episodes, "--checkpoints", folder, "--table", "offline")
    assert refused.exit_code == 2, refused.output
    assert f"reverie serve --journal {folder}" in " ".join(refused.stderr.split()), refused.output
    assert sorted(folder.iterdir()) == files


def contents(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_an_export_of_a_journals_folder_has_what_was_acknowledged_after_the_checkpoint(tmp_path):
    folder = tmp_path / "journal"
    with Server([table("t")], journal=reverie.Journal(folder), listen=False) as server:
        client = server.client()
        client.insert_batch("t", {"x": np.arange(3)})
        client.checkpoint()
        client.insert_batch("t", {"x": np.arange(3, 8)})
        client.configure("t", max_size=6)
        refused = run("export", folder, tmp_path / "x.parquet", "--table", "t")
        assert refused.exit_code == 1, refused.output
        assert "name the server's address instead" in " ".join(refused.stderr.split()), refused.output
    before = contents(folder)
    import pyarrow.parquet as pq

    assert last(run("export", folder, tmp_path / "x.parquet", "--table", "t", "--json"))["items"] == 6
    assert pq.read_table(tmp_path / "x.parquet").column("x").to_pylist() == [2, 3, 4, 5, 6, 7]
    assert contents(folder) == before
    newest = max(path for path in folder.iterdir() if path.suffix == ".checkpoint")
    assert last(run("export", newest, tmp_path / "y.parquet", "--table", "t", "--json"))["items"] == 3
    with Server([table("t")], journal=reverie.Journal(folder), listen=False) as server:
        assert server.client().server_info()["t"].current_size == 6


def test_show_names_columns_dtypes_and_shapes(episodes):
    result = run("show", episodes)
    assert result.exit_code == 0, result.output
    assert "parquet, 10 steps in 2 episodes" in result.stdout
    assert [line.split() for line in result.stdout.splitlines() if line.startswith("obs")] == [
        ["obs", "float32", "[3]"]
    ]
    found = json.loads(run("show", episodes, "--json").stdout)
    assert (found["rows"], found["episodes"], found["row_bytes"]) == (10, 2, 30)
    assert found["columns"]["action"] == {"dtype": "int64", "shape": []}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["import", "{set}", "--table", "replay"], "--server ADDR, or --checkpoints FOLDER"),
        (["import", "{set}", "--table", "replay", "--server", "{server}", "--column", "x"], "no column 'x'"),
        (
            ["import", "{set}", "--table", "replay", "--server", "{server}", "--rename", "x"],
            "--rename must be NAME=VALUE",
        ),
        (["import", "{set}.txt", "--table", "replay", "--server", "{server}"], "no such file"),
        (["export", "{server}", "{set}", "--table", "replay"], "exists already"),
        (["export", "{server}", "{set}.new", "--table", "replay"], "no items"),
        (["export", "{server}", "{set}.new", "--table", "replay", "--format", "lerobot"], "--option fps=10"),
        (["export", "{server}", "{set}.new", "--table", "replay", "--option", "fps=3"], "parquet has the options"),
        (["export", "{set}", "{set}.new", "--table", "replay"], "episodes.parquet"),
        (["show", "{folder}"], "not a data set"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_with_exit_code_2(server, episodes, tmp_path, arguments, reason):
    (tmp_path / "empty").mkdir()
    places = {"set": episodes, "server": server.address, "folder": tmp_path / "empty"}
    result = run(*(argument.format(**places) for argument in arguments))
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_server_that_does_not_answer_is_exit_code_1(episodes):
    result = run("import", episodes, "--server", "127.0.0.1:1", "--table", "replay")
    assert result.exit_code == 1
    assert "cannot be reached" in result.stderr


def test_a_table_that_the_server_does_not_have_is_exit_code_1_with_those_that_it_has(server, episodes):
    result = run("import", episodes, "--server", server.address, "--table", "none")
    assert (result.exit_code, result.stderr) == (
        1,
        "reverie: there is no table 'none'; the server has 'replay', 'other'\n",
    )


def test_a_terminal_shows_rows_bytes_and_the_rate_while_an_import_runs(server, episodes, monkeypatch):
    def written(*, terminal):
        stream = io.StringIO()
        stream.isatty = lambda: terminal
        monkeypatch.setattr("sys.stderr", stream)
        data.import_(episodes, "replay", server=server.address)
        return stream.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    bar = written(terminal=True)
    assert "import into replay" in bar
    assert "10 of 10 rows, 300 B, " in bar
    assert "B/s" in bar
    assert written(terminal=False) == ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("trained") / "run"
    short = {"learning_starts": 30, "max_env_steps": 60, "evaluate_every": 60, "confirmation_episodes": 1}
    reverie.train("dqn", "CartPole-v1", folder=folder, **short)
    return folder


def test_record_writes_the_episodes_of_a_run_from_which_an_agent_trains(trained, tmp_path):
    path = tmp_path / "cartpole.parquet"
    found = last(run("record", trained, path, "--steps", 50, "--random-actions", 1, "--json"))
    assert (found["path"], found["format"], found["agent"], found["env_id"]) == (
        str(path),
        "parquet",
        "dqn",
        "CartPole-v1",
    )
    assert found["rows"] == found["steps"] + found["episodes"] == last(run("show", path, "--json"))["rows"]
    assert (found["steps"] >= 50, found["file_bytes"]) == (True, path.stat().st_size)
    assert found["mean_return"] == sum(found["lengths"]) / found["episodes"] == np.mean(found["returns"])
    result = run("record", trained, tmp_path / "noisy-v0", "--episodes", 2, "--format", "lerobot", "--option", "fps=5")
    assert result.exit_code == 0, result.output
    assert "in 2 episodes of dqn on CartPole-v1 to" in result.stdout
    learnt = reverie.train("cql", "CartPole-v1", dataset=str(path), max_env_steps=60, learning_starts=30)
    assert learnt.learner["updates"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["new.parquet"], 2, "give the amount to play: --steps N, or --episodes N"),
        (["new.parquet", "--steps", 5, "--episodes", 1], 2, "give the amount to play: --steps N, or --episodes N"),
        (["here.parquet", "--steps", 5], 2, "here.parquet: exists already; name another file or folder"),
        (["new.parquet", "--steps", 5, "--option", "compression=lzma"], 2, "compression must be one of 'zstd'"),
        (["new.parquet", "--steps", 5, "--option", "fps=3"], 2, "--option fps: parquet has the options compression"),
        (["new", "--steps", 5, "--format", "lerobot"], 2, "lerobot needs the frames in a second: --option fps=10"),
    ],
)
def test_a_recording_that_cannot_be_made_is_refused_in_one_line(trained, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.parquet").write_text("mine")
    result = run("record", trained, *arguments)
    assert (result.exit_code, words in result.output) == (code, True), result.output
    assert [path.name for path in tmp_path.iterdir()] == ["here.parquet"]


def test_an_environment_that_raises_ends_a_recording_with_code_3_and_no_file(trained, tmp_path, monkeypatch):
    import gymnasium.envs.classic_control.cartpole as cartpole

    def broken(env, action):
        raise RuntimeError("the pole is gone")

    monkeypatch.setattr(cartpole.CartPoleEnv, "step", broken)
    result = run("record", trained, tmp_path / "new.parquet", "--episodes", 1)
    assert (result.exit_code, "the pole is gone" in result.output) == (3, True), result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("format", ["parquet", "lerobot"])
def test_a_signal_ends_a_recording_with_130_and_nothing_is_left(trained, tmp_path, monkeypatch, number, format):
    from reverie import runners

    whole = runners.record_episodes

    def interrupted(*args, progress, **options):
        return whole(*args, progress=lambda *_: signal.raise_signal(number), **options)

    monkeypatch.setattr(runners, "record_episodes", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    options = ["--option", "fps=5"] if format == "lerobot" else []
    result = run("record", trained, tmp_path / "new", "--episodes", 3, "--format", format, *options)
    assert (result.exit_code, "interrupted; nothing was written" in result.output) == (130, True), result.output
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before
