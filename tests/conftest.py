"""Shared by all tests: the Hypothesis profiles, the number of threads, the order of tests, and waiting."""

import contextlib
import functools
import gc
import inspect
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

# Set before NumPy and PyTorch are imported: with one thread per core in each worker and each process of a test, threads
# would only wait for each other. A run sets its own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# No deadline: times on two busy cores do not depend on the code. Derandomised in CI, so that a failure repeats.
settings.register_profile("quick", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "quick")

# Tests send Ctrl-C to this process; started in the background of a shell, it would ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Seconds after which a wait for a condition fails: a watchdog against hangs. A machine may stall for less than that;
#: this is no check of speed.
WATCHDOG = 200.0


def pytest_sessionstart(session):
    """Lets `--last-failed` find the tests of a group in a worker.

    pytest-xdist adds `@group` to their names after pytest has looked for them in their file, and they were left out.
    """
    last = session.config.pluginmanager.get_plugin("lfplugin")
    if last is not None and hasattr(session.config, "workerinput"):
        last.lastfailed |= {name.rpartition("@")[0]: True for name in last.lastfailed if "@" in name}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put tests that share something expensive into one worker, where it is made once.

    Commands are forked from one process, whose imports take seconds. A fixture `trained_...` trains runs for its
    module. Groups run first, and Ray's before the others: a worker that starts a long group last would finish alone.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is not None:
            continue
        if "warm" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("commands"))
        elif any(name.startswith("trained_") for name in item.fixturenames):
            item.add_marker(pytest.mark.xdist_group(f"runs of {item.path.stem}"))

    def rank(item):
        group = item.get_closest_marker("xdist_group")
        return 2 if group is None else int(group.args[0] != "ray")

    items.sort(key=rank)


def pytest_collection_finish():
    """Exempts all imported objects from garbage collection: later collections, the tests' own too, take less time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def minatar():
    """MinAtar's Breakout; without the package, a game with the same spaces whose grid has ones at random places."""
    import gymnasium

    from reverie.agents import env_plugins

    game = "MinAtar/Breakout-v0"
    env_plugins.register_for(game)
    if game in gymnasium.registry:
        yield
        return

    class Grid(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (10, 10, 4), bool)
        action_space = gymnasium.spaces.Discrete(6)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.random((10, 10, 4)) < 0.1, {}

        def step(self, action):
            grid = self.np_random.random((10, 10, 4)) < 0.1
            return grid, float(action == 1), bool(grid[0, 0, 0]), False, {}

    gymnasium.register(game, entry_point=Grid)
    yield
    gymnasium.registry.pop(game)


@pytest.fixture
def mujoco():
    """Three walkers of MuJoCo; without the package, environments with the same spaces that do not move."""
    import importlib.util

    import gymnasium
    import numpy as np

    if importlib.util.find_spec("mujoco") is not None:
        yield
        return

    class Still(gymnasium.Env):
        def __init__(self, numbers, actions, **options):
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (numbers,), np.float64)
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(self.observation_space.shape), {}

        def step(self, action):
            return np.zeros(self.observation_space.shape), 0.0, False, False, {}

    real = {}
    spaces = {"HalfCheetah-v5": (17, 6), "Hopper-v5": (11, 3), "Walker2d-v5": (17, 6)}
    for name, (numbers, actions) in spaces.items():
        real[name] = gymnasium.registry.pop(name)
        gymnasium.register(
            name,
            entry_point=Still,
            max_episode_steps=1_000,
            reward_threshold=real[name].reward_threshold,
            kwargs={"numbers": numbers, "actions": actions},
        )
    yield
    gymnasium.registry.update(real)


@pytest.fixture
def networks_of():
    """A function: the networks of a learner, or of its state, each as one vector of its parameters."""
    import numpy as np

    def vectors(source):
        state = source if isinstance(source, dict) else source.state_dict()
        return {
            name: np.concatenate([one.ravel() for one in named.values()]) for name, named in state["networks"].items()
        }

    return vectors


@pytest.fixture(autouse=True)
def signal_handlers_stay():
    """A handler that a test leaves behind would run in other tests and in the processes that they fork."""
    # That of SIGCHLD stays in a process that had a data loader of PyTorch.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    left = []
    for number, handler in zip(numbers, before, strict=True):
        if signal.getsignal(number) is not handler:
            left.append(f"{number.name}: {signal.getsignal(number)}")
            signal.signal(number, handler)
    assert not left, f"the test left signal handlers behind: {left}"


@pytest.fixture
def until():
    """Waits until a condition is true, at most `WATCHDOG` seconds: `until(lambda: ...)`; returns what it found."""

    def until(true):
        deadline = time.monotonic() + WATCHDOG
        while not (found := true()):
            assert time.monotonic() < deadline, f"not within {WATCHDOG:g} s"
            threading.Event().wait(0.001)
        return found

    return until


PATIENT_RAY = {
    "RAY_memory_monitor_refresh_ms": "0",  # else it kills processes where others have taken the machine's memory
    "RAY_worker_niceness": "0",  # else whatever else runs goes first, for minutes on a busy machine
    "RAY_worker_register_timeout_seconds": "800",
    "RAY_agent_register_timeout_ms": "800000",
    "RAY_gcs_server_port_wait_time_s": "800",
}


def kept_ports():
    """Ports, each once, that stay a test's own while nothing listens there.

    They are outside the range from which the system chooses ports for other programs. A server's port in that range is
    free while the server is away, and a server or a connection of another test may take it: then clients that wait for
    the one server find the other, and send it their items.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    # Below 20,000 are the ports of Ray's own workers.
    ports = [*range(20_000, first), *range(last + 1, 65_536)] or list(range(20_000, 65_536))
    # Each of the workers has some of them, and other tests on this machine most probably others.
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{suffix}", "") for suffix in ("", "_COUNT"))
    ports = ports[int(worker.removeprefix("gw") or 0) :: int(workers or 1)]
    random.SystemRandom().shuffle(ports)
    for port in ports:
        try:
            socket.create_server(("", port)).close()
        except OSError:
            continue
        yield port


PORTS = kept_ports()


@pytest.fixture(scope="session")
def new_port():
    """A function: a port for a server that is killed or stopped while clients go on, and may come back."""
    return functools.partial(next, PORTS)


def ray_ports():
    """Ports for a node's agents: a raylet waits 15 s for an agent to report its own, and ends after that.

    A node binds its ports seconds later.
    """
    names = ("metrics_agent", "metrics_export", "dashboard_agent_listen", "runtime_env_agent")
    return {f"{name}_port": next(PORTS) for name in names}


def forestalling(start):
    """Starts a raylet with all of its agents' ports; it learns one of them from a file only."""
    signature = inspect.signature(start)

    def starting(*args, **options):
        given = signature.bind(*args, **options).arguments
        file = Path(given["session_dir"], f"dashboard_agent_listen_port_{given['node_id']}")
        file.write_text(str(given["dashboard_agent_listen_port"]))
        return start(*args, **options)

    return starting


def patient(find):
    """A `find` for nodes that waits for a node which is not there yet."""

    def found(*args, **options):
        for _ in range(800):
            with contextlib.suppress(RuntimeError):
                return find(*args, **options)
            threading.Event().wait(1.0)
        return find(*args, **options)

    return found


@contextlib.contextmanager
def own_handler():
    """Each node that Ray starts from a process sets the handler of its SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def ray_head():
    """A Ray cluster of one node with 4 CPUs, to which this process is connected; `ray_head.add(...)` adds a node.

    The tests that take it are in one worker: `pytest.mark.xdist_group("ray")`.
    """
    import ray
    from ray._private import services
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in PATIENT_RAY.items():
            monkeypatch.setenv(name, value)
        # In Ray a node must start within half a minute; tests wait for nodes here, or in a fixture of their own.
        monkeypatch.setattr(services, "get_node", patient(services.get_node))
        monkeypatch.setattr(services, "start_raylet", forestalling(services.start_raylet))
        options = {"num_cpus": 4, "include_dashboard": False, "wait": False, **ray_ports()}
        with own_handler():
            cluster = Cluster(initialize_head=True, head_node_args=options)
            ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)

        def add(**options):
            with own_handler():
                return cluster.add_node(wait=False, **options, **ray_ports())

        cluster.add = add
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """An authority, and certificates of a server and a client that it signed: paths of PEM files."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with the openssl command")
    folder = tmp_path_factory.mktemp("pem")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=200)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    openssl("req", "-x509", *curve, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", "-x509", *curve, "-subj", "/CN=other", "-keyout", "other.key", "-out", "other.pem")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1,DNS:{name}.test\n")
        openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder
