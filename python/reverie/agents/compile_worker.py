"""The process that compiles one graph: `python -m reverie.agents.compile_worker FOLDER OUTPUT THREADS`.

It reads `graph.pt` in the folder, and writes the library OUTPUT, or the reason why it cannot to `reason.txt`. It ends
at once when its standard input is closed: when the process that began it has ended, however that was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

GRAPH, REASON = "graph.pt", "reason.txt"
NICENESS = 5
"""The learner goes on meanwhile."""


def main(folder: Path, output: Path, threads: int) -> int:
    """Compile; returns the exit code."""
    if sys.platform != "linux":
        raise RuntimeError("updates are compiled on Linux alone")
    import fcntl  # Windows has none, and imports this module for its names

    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
        Path("/proc/self/oom_score_adj").write_text("1000")  # without memory for both, the learner goes on
    try:
        with output.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be compiling the same graph
            if not output.exists():
                _compile(folder, output, threads)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip().splitlines()
        (folder / REASON).write_text(text[0][:500])
        return 1
    return 0


def _compile(folder: Path, output: Path, threads: int) -> None:
    import torch
    from torch._inductor import aot_compile

    torch.set_num_threads(threads)
    module, shapes = torch.load(folder / GRAPH, weights_only=False)
    examples = tuple(torch.empty_strided(size, stride, dtype=dtype).zero_() for size, stride, dtype in shapes)
    with torch.no_grad():
        made = aot_compile(module, examples, options={"aot_inductor.output_path": str(folder / "update.so")})
    assert isinstance(made, str)
    Path(made).replace(output)


def _end_with_parent() -> None:
    if sys.platform != "linux":
        return  # where `main` compiles nothing
    os.read(0, 1)  # not by `sys.stdin`, whose lock would be held when the process ends
    os.killpg(0, signal.SIGKILL)  # with the compiler that it has started


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
