"""`reverie train --dry-run`: the plan of a run, its processes and memory."""

import json
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("typer")

from reverie import _memory


def test_a_dry_run_prints_processes_memory_and_settings_and_writes_nothing(reverie, tmp_path):
    text = reverie("train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--set", "n_step=5")
    assert text.exit_code == 0, text.stderr
    for word in ("2 actors of 4 environments", "MiB  replay of 50,000 items", "n_step = 5", "max_env_steps = 100000"):
        assert word in text.stdout
    printed = json.loads(reverie("train", "sac", "--env", "Pendulum-v1", "--dry-run", "--json").stdout)
    assert printed["processes"] == 1
    assert printed["settings"]["agent"]["batch_size"] == 128
    assert sum(printed["memory_bytes"].values()) > 2**20
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_dry_run_with_a_disk_counts_what_stays_in_memory(reverie, tmp_path):
    command = ["train", "apex-dqn", "--env", "CartPole-v1", "--dry-run", "--json"]
    whole = json.loads(reverie(*command).stdout)["memory_bytes"]
    partly = json.loads(reverie(*command, "--disk", "spill", "--memory", "1MiB").stdout)
    rows = partly["memory_bytes"]["rows of the replay's items on the disk"]
    assert partly["memory_bytes"] == {
        **{part: size for part, size in whole.items() if not part.startswith("replay")},
        "replay of 50,000 items, partly on the disk": 2**20,
        "rows of the replay's items on the disk": rows,
    }
    assert 350 * 50_000 < rows < 400 * 50_000, "all but those that fit in the memory"
    assert partly["settings"]["run"]["replay_disk"] == str(tmp_path / "spill")
    refused = reverie(*command, "--memory", "1MiB")
    assert refused.exit_code == 2
    assert "there is no replay_disk" in refused.stderr


@pytest.mark.long
def test_a_dry_run_shows_the_journal_and_where_it_is(reverie, tmp_path):
    command = ["train", "apex-dqn", "--env", "CartPole-v1", "--dry-run"]

    def settings(*flags):
        found = json.loads(reverie(*command, "--json", *flags).stdout)["settings"]["run"]
        return found["replay_journal"], found["replay_journal_sync"]

    assert settings() == (None, None)
    assert settings("--journal") == ("run", None)
    assert settings("--journal", "--journal-sync", "always") == ("run", "always")
    assert settings("--journal", "fast", "--journal-sync=os") == (str(tmp_path / "fast"), "os")
    assert settings("--journal=off") == ("off", None)
    assert "; a journal with its checkpoints, sync interval" in reverie(*command, "--journal").stdout
    assert (
        f"; a journal in {tmp_path}/fast, sync os" in reverie(*command, "--journal=fast", "--journal-sync", "os").stdout
    )
    refused = reverie(*command, "--journal-sync", "os")
    assert refused.exit_code == 2
    assert "replay_journal_sync is os and there is no replay_journal" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_dry_run_plans_for_a_described_or_unknown_cluster(reverie, monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**30)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    command = ["train", "apex-dqn", "--env", "CartPole-v1", "--runner", "ray", "--num-actors", "60", "--dry-run"]
    assert "no node has room for a role 'learner'" in reverie(*command).stderr  # it would start Ray here
    elsewhere = reverie(*command, "--address", "auto")
    assert elsewhere.exit_code == 0, elsewhere.stderr
    assert "the nodes are unknown until there is a cluster" in elsewhere.stdout
    fits = reverie(*command, "--node", "1x8GB,8", "--node", "15x4GB,16")
    assert fits.exit_code == 0, fits.stderr
    assert "60 x actor, 1 CPU: an actor of Ray, where it has room; 400 MiB each" in fits.stdout
    assert "on 1 x node of 8GB: 1 x shard" in fits.stdout
    printed = json.loads(reverie(*command, "--node", "16x4GB,16", "--json").stdout)
    assert sum(sum(one["roles"].values()) for one in printed["nodes"]) == printed["processes"] - 1 == 63
    assert {one["node"] for one in printed["nodes"]} == {"node of 4GB"}
    assert all(role["memory_bytes"] > 400 * 2**20 - 1 for role in printed["roles"])
    small = reverie(*command, "--node", "4x4GB,16")
    assert (small.exit_code, small.stdout) == (2, "")
    assert "no node has room for a role 'actor'" in small.stderr
    assert "(--no-check-memory)" in small.stderr
    forced = reverie(*command, "--node", "4x4GB,16", "--no-check-memory")
    assert forced.exit_code == 0, forced.stderr
    assert "no node has room for a role 'actor'" in forced.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--node", "4GB", "--dry-run"], "--node describes a Ray cluster for --dry-run: give it with --runner ray"),
        (["--node", "4GB", "--runner", "ray"], "--node describes a Ray cluster for --dry-run"),
        (["--node", "4", "--runner", "ray", "--dry-run"], "a node is '4', and must be [COUNTx]MEMORY"),
    ],
)
def test_an_invalid_description_of_nodes_is_refused(reverie, options, words):
    result = reverie("train", "apex-dqn", "--env", "CartPole-v1", *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_dry_run_of_processes_prints_each_role_and_starts_none(reverie, monkeypatch):
    from reverie.runners import process

    monkeypatch.setattr(process, "Processes", lambda: pytest.fail("processes were started"))
    arguments = ["train", "apex-dqn", "--env", "CartPole-v1", "--runner", "process", "--num-actors", 3, "--dry-run"]
    text = reverie(*arguments)
    assert text.exit_code == 0, text.stderr
    for word in ("7 processes", "3 x actor, 1 CPU", "1 x shard", "1 x learner", "3 actors of 4 environments"):
        assert word in text.stdout
    printed = json.loads(reverie(*arguments, "--json").stdout)
    assert (printed["runner"], printed["processes"], printed["settings"]["agent"]["num_actors"]) == ("process", 7, 3)
    assert {place["role"]: place["count"] for place in printed["roles"]}["actor"] == 3


def test_a_dry_run_prints_the_learners_and_the_parameter_shards(reverie):
    numbers = ["--num-learners", 3, "--num-parameter-shards", 4]
    arguments = ["train", "gorila", "--env", "CartPole-v1", *numbers, "--runner", "process", "--dry-run"]
    text = reverie(*arguments)
    assert text.exit_code == 0, text.stderr
    for word in ("3 x learner, 1 CPU", "4 x parameter shard, 1 CPU", "3 learners on 4 parameter shards"):
        assert word in text.stdout
    settings = json.loads(reverie(*arguments, "--json").stdout)["settings"]["agent"]
    assert (settings["num_learners"], settings["num_parameter_shards"]) == (3, 4)


@pytest.mark.long
def test_impossible_layouts_are_refused_in_one_line(reverie):
    for arguments, words in (
        (["dqn", "--num-shards", 2], "num_shards is 2, and the runner 'local' has one shard"),
        (["ppo", "--runner", "process", "--num-shards", 2], "num_shards is 2, which ppo does not support"),
        (
            ["dqn", "--runner", "process", "--address", "auto"],
            "--address is for a Ray cluster, and --runner is process",
        ),
        (["dqn", "--runner", "process", "--num-actors", 0], "--num-actors"),
        (
            ["dqn", "--num-learners", 2],
            "--num-learners is 2, and dqn has one learner, which holds the parameters itself",
        ),
        (["ppo", "--num-parameter-shards", 2], "--num-parameter-shards is 2, and ppo has one learner"),
        (["gorila", "--num-learners", 0], "--num-learners"),
    ):
        result = reverie("train", *arguments, "--env", "CartPole-v1")
        assert result.exit_code == 2, arguments
        assert words in result.stderr


def test_a_dry_run_on_ray_prints_the_shards_and_needs_no_ray(reverie, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "reverie.runners.ray.cluster", raising=False)
    monkeypatch.delattr("reverie.runners.ray.cluster", raising=False)  # where a test before this one imported it
    arguments = ["train", "apex-dqn", "--env", "CartPole-v1", "--runner", "ray", "--num-shards", 2]
    text = reverie(*arguments, "--dry-run")
    assert text.exit_code == 0, text.stderr
    assert "2 x shard, 1 CPU: an actor of Ray" in text.stdout
    assert "with TLS and a token" in text.stdout
    missing = reverie(*arguments)
    assert missing.exit_code == 2
    assert 'pip install "reverie[ray]"' in missing.stderr


def test_a_run_from_a_data_set_that_is_missing_or_does_not_fit_is_refused_before_it_starts(reverie, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    steps = {"action": [0, 1, 0], "reward": [1.0] * 3, "terminated": [False, False, True]}
    pq.write_table(pa.table({"obs": [[0.0] * 4] * 3, **steps}), tmp_path / "cartpole.parquet")
    pq.write_table(pa.table({"obs": [[0.0] * 3] * 3, **steps}), tmp_path / "other.parquet")
    command = ["train", "cql", "--env", "CartPole-v1", "--set"]
    for flags in (["--dry-run"], [], ["--seeds", "0-1"]):
        for data, words in (
            (["dataset=missing.parquet"], "missing.parquet"),
            (["dataset=other.parquet"], "other.parquet has obs of shape (3,), and CartPole-v1 has (4,)"),
            (
                ["dataset=cartpole.parquet", "--set", "capacity=2", "--set", "learning_starts=2"],
                "has 3 rows, which make 3 items",
            ),
        ):
            result = reverie(*command, *data, *flags)
            assert result.exit_code == 2, result.output
            assert words in result.stderr.replace("\n", " ")
            assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()
    assert reverie(*command, "dataset=cartpole.parquet", "--dry-run").exit_code == 0
