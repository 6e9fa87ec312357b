import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import reverie
from reverie import Table, _native


@pytest.fixture
def client():
    with reverie.Server([Table.queue("q", 5)], listen=False) as server:
        yield server.client()


@pytest.fixture
def interrupted(until):
    """Waits in a call, sends Ctrl-C to this process once it waits, and gives the seconds until the call ended."""

    def interrupted(call, waits):
        sent = []

        def send():
            until(waits)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        took = time.monotonic() - sent[0]
        sender.join()
        assert not waits(), "what was waited for is withdrawn"
        return took

    return interrupted


#: Seconds; the promise is 0.1. One of many waits must end so soon: a machine may be busy, but not always just then.
SOON, MANY = 0.5, 20


def test_ctrl_c_ends_a_wait_for_samples_soon(client, interrupted):
    waits = lambda: client.why("q").samples  # noqa: E731
    assert any(interrupted(lambda: client.sample_batch("q", 1), waits) < SOON for _ in range(MANY))


def test_ctrl_c_ends_a_wait_for_an_insert_and_withdraws_it(client, interrupted):
    client.insert_batch("q", {"n": np.arange(5)})
    waits = lambda: client.why("q").inserts  # noqa: E731
    assert any(interrupted(lambda: client.insert({"n": 9}, {"q": 1.0}), waits) < SOON for _ in range(MANY))


def test_other_threads_run_while_one_waits(client):
    waiting = threading.Thread(target=lambda: client.sample_batch("q", 1))
    waiting.start()
    while not client.why("q").samples:
        pass
    client.insert({"n": 1}, {"q": 1.0})
    waiting.join(200)
    assert not waiting.is_alive()


@pytest.mark.slow
def test_a_wait_without_timeout_logs_its_reason_once(client, caplog):
    threading.Timer(11.0, lambda: client.insert({"n": 1}, {"q": 1.0})).start()
    with caplog.at_level("WARNING", "reverie"):
        client.sample_batch("q", 1)
    [record] = caplog.records
    assert "still waiting after 10 s" in record.getMessage()
    assert "1 more insert is needed" in record.getMessage()


def test_a_panic_of_the_engine_is_an_exception_and_the_process_survives(client):
    with pytest.raises(reverie.InternalError, match="a panic on request"):
        _native._panic()
    client.insert({"n": 1}, {"q": 1.0})
    assert client.sample_batch("q", 1).data["n"].tolist() == [1]


#: The most times that an observation goes through the gate on its way to a table, and on its way to a batch.
MOST_ENTRIES = 3


def _by_insert(client):
    return lambda obs: client.insert({"obs": obs}, {"t": 1.0})


def _by_insert_batch(client):
    return lambda obs: client.insert_batch("t", {"obs": obs[None]})


def _by_trajectory_writer(client):
    writer = client.trajectory_writer(num_keep_alive_refs=2)

    def write(obs):
        writer.append({"obs": obs})
        writer.create_item("t", 1.0, {"obs": writer.history["obs"][-1:]})

    return write


def _by_transition_writer(client):
    writer = client.transition_writer("t", n_step=1, discount=0.9)
    return lambda obs: writer.append(obs, np.int64(1), 1.0, False, False)


def _by_structured_writer(client):
    pattern = reverie.structured.pattern_from_transform({"obs": None}, lambda step: {"obs": step["obs"][-1:]})
    writer = client.structured_writer([reverie.structured.create_config(pattern, "t")])
    return lambda obs: writer.append({"obs": obs})


@pytest.mark.parametrize(
    "way", [_by_insert, _by_insert_batch, _by_trajectory_writer, _by_transition_writer, _by_structured_writer]
)
def test_an_observation_crosses_the_gate_three_times_at_most_to_its_table_and_to_its_batch(way):
    table = Table("t", reverie.selectors.Lifo(), reverie.selectors.Fifo(), 9, reverie.rate_limiters.MinSize(1))
    with reverie.Server([table], listen=False) as server:
        client = server.client()
        write = way(client)
        for step in range(3):  # the first ones agree on columns
            write(np.full(4, step, np.float32))
        client.sample_batch("t", 1)
        inserted, before = client.info().tables["t"].num_inserts, _native._entries()
        write(np.full(4, 7, np.float32))
        to_table = _native._entries() - before
        assert client.info().tables["t"].num_inserts == inserted + 1
        before = _native._entries()
        batch = client.sample_batch("t", 1)
        to_batch = _native._entries() - before
    written = batch.data["next_obs"] if way is _by_transition_writer else batch.data["obs"]
    assert written.ravel().tolist() == [7.0] * 4
    assert 1 <= to_table <= MOST_ENTRIES
    assert 1 <= to_batch <= MOST_ENTRIES


def test_the_error_in_a_forked_child_advises_spawn(client):
    client.insert({"n": 1}, {"q": 1.0})
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = b"nothing raised"
        try:
            client.sample_batch("q", 1)
        except reverie.ForkedError as error:
            text = str(error).encode()
        os.write(writing, text)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"spawn" in os.read(reading, 1000)
    assert client.sample_batch("q", 1).data["n"].tolist() == [1]


def _pid(_):
    return os.getpid()


def test_a_forked_child_ends_without_touching_the_parents_tables(client):
    client.insert({"n": 1}, {"q": 1.0})
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert os.getpid() not in pool.map(_pid, range(4))
    assert client.info().tables["q"].current_size == 1


def test_live_handles_refuse_to_be_pickled(client):
    with pytest.raises(TypeError, match="listen=True"):
        pickle.dumps(client)
    with reverie.Server([Table.queue("q", 5)], listen=False) as server, pytest.raises(TypeError, match="server"):
        pickle.dumps(server)


def test_errors_pickle_with_what_they_carry():
    for error in (
        reverie.SignatureError("text", path="a/b", got="x", want="y"),
        reverie.DeadlineExceededError("text", why="because", partial=[1]),
        reverie.UnknownTableError("text", name="n", known=["m"]),
        reverie.ResourceExhaustedError("text", what="w", needed=2, budget=1, hint="h"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == "text"
        assert vars(again) == vars(error)
        assert isinstance(again, reverie.ReplayError)


def test_errors_pickle_with_what_was_added_to_them_later():
    for error in (reverie.DeadlineExceededError("text"), reverie.StorageError("text", path="p")):
        # As the engine does with draws that have no batch in common, and programs with what they know.
        error.drawn = [1, 2]
        error.add_note("of the second learner")
        again = pickle.loads(pickle.dumps(error))
        assert (again.drawn, again.__notes__) == ([1, 2], ["of the second learner"])


def test_import_loads_numpy_and_no_framework():
    frameworks = ("torch", "jax", "ray", "gymnasium", "ml_dtypes", "hypothesis")
    code = f"import sys, reverie; print([name for name in {frameworks} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PUBLIC = [
    "Batch",
    "BatchInfo",
    "Client",
    "ClientTLS",
    "ClosedError",
    "DamagedError",
    "DeadlineExceededError",
    "EpisodeWriter",
    "ForkedError",
    "InternalError",
    "Journal",
    "PatternDataset",
    "ProtocolError",
    "RaggedError",
    "ReplayError",
    "ReplaySample",
    "ResourceExhaustedError",
    "ReverbError",
    "SampleInfo",
    "SequenceWriter",
    "Server",
    "ServerRestartedWarning",
    "ServerTLS",
    "ShardedClient",
    "SignatureError",
    "StorageError",
    "StructuredWriter",
    "SupersededError",
    "TFClient",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TimestepDataset",
    "Token",
    "TrainingWarning",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "TransitionWriter",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownKeyError",
    "UnknownOutcomeError",
    "UnknownTableError",
    "UpdateResult",
    "VectorWriter",
    "Writer",
    "checkpointers",
    "errors",
    "extensions",
    "info",
    "item_selectors",
    "load_policy",
    "parameters",
    "pattern_dataset",
    "platform",
    "rate_limiters",
    "replay_sample",
    "reverb_types",
    "selectors",
    "specs",
    "structured",
    "structured_writer",
    "timestep_dataset",
    "train",
    "trajectory_writer",
    "types",
]


def test_the_public_names_are_the_listed_ones():
    assert reverie.__all__ == PUBLIC
    assert all(hasattr(reverie, name) for name in PUBLIC)
    assert reverie.ReverbError is reverie.ReplayError
    assert reverie.SampleInfo._fields == ("key", "probability", "table_size", "priority", "times_sampled")
    assert [type(value).__name__ for value in reverie.SampleInfo.zeros()] == [
        "uint64",
        "float64",
        "int64",
        "float64",
        "int32",
    ]
