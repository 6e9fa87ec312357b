"""The same random programs against dm-reverb and against Reverie: `make test-differential`.

ARGS="--kind trajectories --seed 17" replays one program, "--seeds 0:500" runs many, "--transport grpc" takes ours over
a network. The exit code is 1 where any program differed.
"""

from __future__ import annotations

import argparse
import json
import sys

import harness
import programs

sys.path.insert(0, str(harness.ROOT))
from benchmarks.peers import NETWORK_PEERS, python_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=sorted(programs.MAKERS), help="one kind only")
    parser.add_argument("--seed", type=int, help="replay one program, and print it")
    parser.add_argument("--seeds", default="0:100", help="first:end, without the end")
    parser.add_argument("--transport", choices=["in-process", "shared-memory", "grpc"], help="how ours is reached")
    arguments = parser.parse_args()
    first, end = (int(part) for part in arguments.seeds.split(":"))
    seeds = range(first, end) if arguments.seed is None else [arguments.seed]
    ours = harness.Worker("ours", transport=arguments.transport)
    theirs = harness.Worker("theirs", python_of(NETWORK_PEERS["dm-reverb"]))
    failed = 0
    try:
        for kind in arguments.kind or programs.MAKERS:
            same = operations = 0
            for seed in seeds:
                program = programs.program(kind, seed)
                if arguments.seed is not None:
                    print(json.dumps(program, indent=1))
                found = harness.differences(program, ours.run(program), theirs.run(program))
                operations += len(program["operations"])
                same += not found
                failed += bool(found)
                if found:
                    print(f"--kind {kind} --seed {seed} differs:\n  " + "\n  ".join(found[:2]), flush=True)
            print(f"{kind}: {same} of {len(seeds)} programs alike, {operations} operations", flush=True)
    finally:
        ours.close()
        theirs.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
