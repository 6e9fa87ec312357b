"""Compiles a learner's updates next to its first updates, and then makes them by the compiled graphs.

A process of its own compiles each graph into a library in the user's cache folder, where the next run finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import reverie
from reverie._picklable import Picklable
from reverie.agents import compile_worker, tracing
from reverie.agents.core import CompileNote, CompilePlan
from reverie.agents.tracing import GraphState, Result, Single, UpdateGraph, UpdateNoise

PATIENCE = 600.0
"""Seconds after which compiling is abandoned: minutes more than it takes on a busy machine."""
MOST_KEPT = 64
"""Libraries in the cache folder; the oldest ones are removed."""
TOLERANCE = 0.02
"""Largest distance of the first compiled update from the one by single operations, as a share of its length."""


class CompileError(Picklable, RuntimeError):
    """The updates cannot be compiled. `.reason`"""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the updates cannot be compiled: {reason}; leave compile=on out to train without")


def missing_compiler() -> str:
    """Why nothing can be compiled on this machine; empty if it can."""
    if sys.platform != "linux":
        return "updates are compiled on Linux alone"
    name = os.environ.get("CXX", "g++")
    if not name.strip() or shutil.which(shlex.split(name)[0]) is None:
        return f"there is no C++ compiler {name!r}: install g++, or name one in CXX"
    if not hasattr(torch._C, "_aoti"):
        return f"PyTorch {torch.__version__} has no compiler for the CPU: install a newer one"
    return ""


def cache_folder() -> Path:
    """The folder of compiled updates, made if it is missing, which only its user can write into.

    Raises `CompileError` for one that others may write into: its libraries are loaded.
    """
    base = os.environ.get("REVERIE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "reverie"
    folder = Path(base).expanduser() / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise CompileError(f"{folder} cannot be made ({error.strerror})") from error
    if sys.platform != "linux":
        raise CompileError(missing_compiler())
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompileError(f"others may write into {folder}: make it yours alone (chmod 700)")
    return folder


@dataclass
class _Job:
    """A process that compiles one graph."""

    process: subprocess.Popen[bytes]
    folder: Path

    def reason(self) -> str:
        """Why it failed."""
        with suppress(OSError):
            return (self.folder / compile_worker.REASON).read_text()
        return f"the process that compiles ended with {self.process.returncode}"

    def close(self) -> None:
        """End it, with the compilers that it has started, and remove its files."""
        if sys.platform != "linux":
            return  # where no process compiles
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class CompiledUpdate:
    """One kind of update, compiled."""

    def __init__(self, graph: UpdateGraph, library: Path) -> None:
        self.graph = graph
        self._run = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1).run

    def __call__(self, learner: Any, state: GraphState, columns: Mapping[str, Tensor]) -> Result:
        """Make the learner's next update of these columns."""
        graph = self.graph
        noise = graph.random_numbers(learner._generator)
        result = self.outputs(state.tensors, state.factors(), noise, columns)
        if result[1].get(tracing.STEPPED, 1.0):
            for name in graph.steps:
                learner._optimizers[name].count_step()
        return result

    def outputs(
        self, tensors: list[Tensor], factors: Tensor, noise: list[Tensor], columns: Mapping[str, Tensor]
    ) -> Result:
        """Change `tensors` as the update does; returns priorities, if any, and figures."""
        graph = self.graph
        found = self._run([*tensors, factors, *noise, *(columns[name] for name in graph.columns), *graph.constants])
        figures = dict(zip(graph.figures, found[-1].tolist() if graph.figures else (), strict=True))
        return (found[0] if graph.has_priorities else None), figures


class UpdateCompiler:
    """Makes a learner's updates by compiled graphs, from a planned update on."""

    def __init__(self, learner: Any, plan: CompilePlan) -> None:
        self._learner, self._plan = learner, plan
        self._state: GraphState | None = None
        self._graphs: dict[int, tuple[UpdateGraph, Path]] = {}
        self._jobs: list[_Job] = []
        self._updates: dict[int, CompiledUpdate] | None = None
        self._compared: set[int] = set()
        """The kinds of updates that were compared with those of single operations."""
        self._failed = False
        self._began = 0.0
        self._notes: list[CompileNote] = []
        self.num_compiled = 0
        """Updates that a compiled graph made."""

    def ready(self) -> bool:
        """Whether the next update need not wait for a compiler."""
        if self._jobs:
            self._poll()
        return not (self._jobs and self._must_be_compiled)

    def drain_notes(self) -> list[CompileNote]:
        """Notes about updates that were compiled, or could not be, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def forget_state(self) -> None:
        """Look up the learner's tensors again: it has loaded others."""
        self._state = None

    def close(self) -> None:
        """End the compilers that still run. The learner makes its next updates by single operations."""
        jobs, self._jobs, self._updates, self._failed = self._jobs, [], None, True
        for job in jobs:
            job.close()

    def update(self, columns: dict[str, Tensor], single: Single) -> Result | None:
        """Make the next update by its compiled graph; None, having done nothing, if it is to be made as others are.

        Waits for the compilers if this update is a compiled one by the plan. Raises `CompileError` if the plan
        requires compiled updates, and there are none.
        """
        learner = self._learner
        version = learner.version
        if self._failed or self._steps < self._plan.begin:
            return None
        if self._updates is None and not self._jobs:
            self._begin(columns, single)
            return None
        while not self.ready():
            time.sleep(0.02)
        if self._updates is None or not self._may_be_compiled:
            return None
        kind = learner._kind(version)
        compiled = self._updates.get(kind)
        if compiled is None or not compiled.graph.fits(columns):
            return None
        if self._state is None:
            self._state = GraphState(learner)
        if kind not in self._compared and not self._agrees(compiled, columns, single):
            self._fail("a compiled update differs from the same update by single operations")
            return None
        self._compared.add(kind)
        self.num_compiled += 1
        return compiled(learner, self._state, columns)

    @property
    def _steps(self) -> int:
        """The gradient steps of all updates before this one."""
        steps: int = self._learner.version * self._learner._steps_of_update
        return steps

    @property
    def _must_be_compiled(self) -> bool:
        use_from = self._plan.use_from
        return use_from is not None and self._steps >= use_from

    @property
    def _may_be_compiled(self) -> bool:
        return self._plan.use_from is None or self._must_be_compiled

    def _begin(self, columns: dict[str, Tensor], single: Single) -> None:
        """Trace every kind of update, and start a compiler for each graph that the cache folder lacks."""
        learner, self._began = self._learner, time.monotonic()
        if reason := missing_compiler():
            self._fail(reason)
            return
        version = learner.version
        try:
            folder = cache_folder()
            for kind, example in learner._kinds().items():
                learner.version = example
                graph = tracing.trace(learner, columns, single)
                library = folder / f"{_key(graph)}.so"
                self._graphs[kind] = graph, library
            for graph, library in self._graphs.values():
                if not library.exists():
                    self._jobs.append(_start(graph, library, folder))
        except CompileError as error:
            self._fail(error.reason)
        except Exception as error:  # of PyTorch's tracer
            self._fail(f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            learner.version = version
        if not self._jobs and not self._failed:
            self._load(found=True)

    def _poll(self) -> None:
        if time.monotonic() - self._began > PATIENCE:
            self._fail(f"the compiler took more than {PATIENCE:.0f} s")
            return
        if any(job.process.poll() is None for job in self._jobs):
            return
        failed = [job for job in self._jobs if job.process.returncode]
        if failed:
            self._fail(failed[0].reason())
            return
        for job in self._jobs:
            job.close()
        self._jobs = []
        self._load(found=False)

    def _load(self, *, found: bool) -> None:
        try:
            self._updates = {kind: CompiledUpdate(*one) for kind, one in self._graphs.items()}
        except Exception as error:  # of a damaged library
            for _, library in self._graphs.values():
                library.unlink(missing_ok=True)
            self._fail(f"{type(error).__name__}: {error}".splitlines()[0])
            return
        for _, library in self._graphs.values():
            with suppress(OSError):
                os.utime(library)
        self._notes.append(CompileNote(self._learner.version, time.monotonic() - self._began, found))

    def _fail(self, reason: str) -> None:
        self.close()
        if self._plan.required:
            raise CompileError(reason)
        self._notes.append(CompileNote(self._learner.version, time.monotonic() - self._began, False, reason))

    def _agrees(self, compiled: CompiledUpdate, columns: dict[str, Tensor], single: Single) -> bool:
        """Whether the compiled update does what the learner's own does, on copies of its state."""
        assert self._state is not None
        noise = compiled.graph.random_numbers(torch.Generator().manual_seed(0))
        one, other = ([tensor.clone() for tensor in self._state.tensors] for _ in range(2))
        factors = self._state.factors()
        expected = tracing.run(self._learner, single, one, factors, UpdateNoise(noise), columns)
        found = compiled.outputs(other, factors, noise, columns)
        return tracing.agree(self._state.tensors, (one, expected), (other, found), TOLERANCE)


def _key(graph: UpdateGraph) -> str:
    """A name for the library of a graph: other operations, versions, processors or threads have another."""
    processor = [platform.machine()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags")]
    about = [graph.digest, reverie.__version__, torch.__version__, torch.get_num_threads(), *processor]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


def _start(graph: UpdateGraph, library: Path, cache: Path) -> _Job:
    """Start a process that compiles a graph."""
    _remove_oldest(cache)
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=cache))
    torch.save((graph.module, graph.shapes), folder / compile_worker.GRAPH)
    package = str(Path(reverie.__file__).parents[1])
    environment = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        **os.environ,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # it starts no pool of processes
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", compile_worker.__name__, str(folder), str(library), str(torch.get_num_threads())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    return _Job(process, folder)


def _remove_oldest(cache: Path) -> None:
    """Remove the libraries that were used longest ago, above `MOST_KEPT`, and files of runs that were killed."""
    with suppress(OSError):
        for job in cache.glob("job-*"):
            if time.time() - job.stat().st_mtime > 24 * 3600:
                shutil.rmtree(job, ignore_errors=True)
        kept = sorted(cache.glob("*.so"), key=lambda one: one.stat().st_mtime)
        for one in kept[: max(0, len(kept) - MOST_KEPT + 1)]:
            one.unlink()
            one.with_suffix(".lock").unlink(missing_ok=True)
