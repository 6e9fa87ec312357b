"""The memory of the process, compared with the table's count."""

import subprocess
import sys

WRITE = """
import resource
import numpy as np
import reverie

STEPS, FRAME = 4_000, 84 * 84

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

table = reverie.Table("t", max_size=STEPS, sampler=reverie.selectors.Uniform(), remover=reverie.selectors.Fifo(),
    rate_limiter=reverie.rate_limiters.MinSize(1), compression="zstd")
client = reverie.Server([table], listen=False).client()
frame, action, reward, quiet = np.zeros((1, 84, 84), np.uint8), np.zeros(1, int), np.zeros(1), np.zeros(1, bool)
with client.transition_writer("t", num_envs=1, frame_stack=4) as writer:
    for step in range(STEPS):
        frame[0, step % 84, (7 * step) % 84] = step % 251
        writer.append(frame, action, reward, quiet, quiet)
        if step == 500:
            before = resident()
print(resident() - before, (STEPS - 500) * FRAME, client.info().size_bytes)
"""


def test_packing_a_chunk_frees_the_memory_of_the_open_one() -> None:
    done = subprocess.run([sys.executable, "-c", WRITE], capture_output=True, text=True, timeout=200, check=True)
    grown, raw, counted = (int(word) for word in done.stdout.split())
    assert counted < raw / 4, "these frames pack"
    # It grows by a sixteenth of the raw bytes here; by all of them where the room of open chunks is not used again.
    assert grown < raw / 3, f"grew by {grown} bytes for {raw} bytes of frames, {counted} packed"
