"""The memory limit of a server."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie import _memory


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "bytes_", "source"),
    [
        ({}, 1000, "the machine"),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "500"}, 500, "control group"),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, 1000, "the machine"),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/memory.max": "900",
                "sys/fs/cgroup/a/memory.max": "700",
            },
            700,
            "control group",
        ),
        ({"proc/self/cgroup": "0::/of/the/host", "sys/fs/cgroup/memory.max": "400"}, 400, "control group"),
        (
            {"proc/self/cgroup": "5:cpu,memory:/x", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "600"},
            600,
            "control group",
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            1000,
            "the machine",
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "5000"}, 1000, "the machine"),
    ],
)
def test_the_memory_limit_of_a_process_is_its_smallest_limit(tmp_path, files, bytes_, source):
    most, why = _memory.allowed(write(tmp_path, files), physical=1000)
    assert (most, source in why) == (bytes_, True), why


def test_available_memory_lies_between_nothing_and_everything():
    assert 10 * 2**20 < _memory.available_memory() < 2**50


GIB = 2**30


def group_of(version: int, folder: str, limit: int | str, used: int, files: int) -> dict[str, str]:
    """The files of a control group, of which so many bytes are cached files."""
    top, names, whole = {
        1: ("sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"),
        2: ("sys/fs/cgroup", ("memory.max", "memory.current"), ""),
    }[version]
    stat = {f"{whole}inactive_file": files - 3, f"{whole}active_file": 3, f"{whole}anon": GIB, f"{whole}shmem": 7}
    if version == 1:  # of the group alone
        stat |= {"inactive_file": 5, "active_file": 4}
    return {
        f"{top}{folder}/{names[0]}": str(limit),
        f"{top}{folder}/{names[1]}": str(used),
        f"{top}{folder}/memory.stat": "\n".join(f"{name} {value}" for name, value in stat.items()),
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("groups", "free", "expected"),
    [
        ([("", 8 * GIB, 7 * GIB, 6 * GIB)], 32, 7),  # as after a build that has filled the file cache of a container
        ([("", 8 * GIB, 7 * GIB, 6 * GIB)], 1, 1),
        ([("", "max", 7 * GIB, 6 * GIB), ("/service", 4 * GIB, 3 * GIB, GIB)], 32, 2),
        ([("/service", 4 * GIB, GIB, 0), ("/service/run", 3 * GIB, GIB, GIB)], 32, 3),
        ([("/service", 4 * GIB, 3 * GIB, 0), ("/service/run", 3 * GIB, GIB, GIB)], 32, 1),
        ([("/service", GIB, 2 * GIB, 0)], 32, 0),
    ],
)
def test_available_memory_is_what_the_machine_and_every_control_group_has_left(
    tmp_path, version, groups, free, expected
):
    files = {
        "proc/self/cgroup": "0::/service/run" if version == 2 else "5:cpu,memory:/service/run",
        "proc/meminfo": f"MemTotal: {64 * 2**20} kB\nMemAvailable: {free * 2**20} kB",
    }
    for group in groups:
        files |= group_of(version, *group)
    assert _memory.available_memory(write(tmp_path, files)) == expected * GIB


def test_memory_is_divided_between_tables_and_connections():
    whole = _memory.divide(8 << 30, None)
    assert (whole.network, whole.tables) == (2 << 30, 6 << 30)
    assert _memory.divide(1 << 40, None).network == _memory.MOST_NETWORK
    given = _memory.divide(500 << 20, 200 << 20)
    assert (given.network, given.tables) == (300 << 20, 200 << 20)
    assert _memory.divide(100 << 20, 200 << 20).network == _memory.LEAST_NETWORK
    most, _ = _memory.allowed()
    assert _memory.divide(None, None).memory == int(most * _memory.SHARE)


def test_a_server_logs_its_memory_limit_and_the_reason(uniform, caplog):
    with (
        caplog.at_level(logging.INFO, "reverie"),
        reverie.Server([uniform("t")], max_memory=4_000_000_000) as server,
        reverie.Client(server.address, transport="grpc") as client,
    ):
        info = client.info()
    assert (info.max_memory, info.max_bytes, info.max_network_bytes) == (4_000_000_000, 3_000_000_000, 1_000_000_000)
    assert 0 <= info.network_bytes < 1_000_000
    assert "uses at most 4.0 GB of memory (max_memory): tables 3.0 GB (max_bytes), connections 1.0 GB" in caplog.text


def test_a_server_of_one_process_has_no_bound_unless_one_is_given(uniform):
    assert reverie.Server([uniform("t")], listen=False).client().info().max_bytes is None
    bounded = reverie.Server([uniform("t")], listen=False, max_memory=1 << 30)
    assert bounded.client().info().max_bytes == (1 << 30) - (1 << 28)


def test_max_bytes_that_leaves_nothing_for_connections_is_a_warning(uniform, caplog):
    with caplog.at_level(logging.WARNING, "reverie"):
        reverie.Server([uniform("t")], max_bytes=1 << 30, max_memory=1 << 30).stop()
    assert "max_bytes leaves less than" in caplog.text


def test_batches_on_their_way_are_bounded_by_the_memory_of_the_server(uniform):
    with (
        reverie.Server([uniform("t")], max_bytes=8 << 20, max_memory=16 << 20) as server,
        reverie.Client(server.address, transport="grpc") as client,
    ):
        client.insert_batch("t", {"x": np.zeros((4, 1 << 20), np.uint8)})
        assert client.sample_batch("t", 4, timeout=60.0).data["x"].shape == (4, 1 << 20)
        with pytest.raises(reverie.ResourceExhaustedError, match="a batch of 40 draws"):
            client.sample_batch("t", 40, timeout=60.0)


def test_a_batch_of_a_queue_that_is_too_large_to_be_sent_is_handed_out_draw_by_draw(network):
    with (
        reverie.Server([reverie.Table.queue("q", 20)], max_bytes=64 << 20, max_memory=128 << 20) as server,
        reverie.Client(server.address, transport=network, patience=100.0, grace=100.0) as client,
    ):
        client.insert_batch("q", {"x": np.zeros((20, 1 << 20), np.uint8), "n": np.arange(20)}, timeout=60.0)
        with pytest.raises(reverie.ResourceExhaustedError, match="a batch of 20 draws") as raised:
            client.sample_batch("q", 20, timeout=60.0)
        assert [batch.data["n"].tolist() for batch in raised.value.drawn] == [[n] for n in range(20)]
        assert client.info(timeout=60.0).tables["q"].current_size == 0
