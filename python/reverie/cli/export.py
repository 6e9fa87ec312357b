"""`reverie export`: a trained policy as files that other programs run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.common import LastLineJson, find_modules_here, refuse, require_agents

EPILOG = (
    "Exit codes: 0 every file was written and agrees with PyTorch; 2 the policy cannot be read, an extra is missing, or"
    " a file cannot be written or does not agree, and was not written."
)


def export(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY", help="A run's folder (its newest checkpoint), one checkpoint, or a .safetensors file."
        ),
    ],
    onnx: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write ONNX, checked by onnxruntime; needs reverie[onnx].")
    ] = None,
    torchscript: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write TorchScript, for torch.jit.load in Python and C++.")
    ] = None,
    exported_program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a program of torch.export, for torch.export.load.")
    ] = None,
    safetensors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write weights, architecture and specs, for reverie.load_policy."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", help="The agent as module:agent, if it is not found by the name in POLICY."),
    ] = None,
    as_json: LastLineJson = False,
) -> None:
    """Write the policy of a run as files for other programs: greedy actions of observations, for batches of any size.

    ONNX, TorchScript and torch.export files are loaded again and compared with PyTorch before they get their names.
    """
    require_agents()
    find_modules_here()
    wanted = {
        "onnx": onnx,
        "torchscript": torchscript,
        "exported_program": exported_program,
        "safetensors": safetensors,
    }
    files = {kind: file for kind, file in wanted.items() if file is not None}
    if not files:
        refuse("nothing to export: name a file with --onnx, --torchscript, --exported-program or --safetensors")
    if len({file.absolute() for file in files.values()}) < len(files):
        refuse("two of the files have the same name: name another file for each of them")
    from reverie.agents import exports
    from reverie.policies import load_policy

    writers = {"onnx": exports.to_onnx, "torchscript": exports.to_torchscript}
    writers["exported_program"] = exports.to_exported_program
    stream, found = sys.stderr if as_json else sys.stdout, []
    try:
        policy = load_policy(path, agent=agent)
        for kind, file in files.items():
            difference = writers[kind](policy, file) if kind in writers else None
            if difference is None:
                policy.save(file)
            found.append({"kind": kind, "file": str(file), "size_bytes": file.stat().st_size, "difference": difference})
            agrees = "" if difference is None else f"; differs from PyTorch by at most {difference:.2g}"
            print(f"{kind.replace('_', ' ')}: {file}, {file.stat().st_size:,} bytes{agrees}", file=stream, flush=True)
    except (ValueError, TypeError, OSError, ImportError) as error:
        refuse(error)
    if as_json:
        print(json.dumps({"policy": str(policy.path), "agent": policy.agent.name, "files": found}), flush=True)
