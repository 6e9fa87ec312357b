"""Executes the steps of `deploy/Containerfile` without a container engine: `make try-image`.

As root on Debian: `python tools/containerfile.py FOLDER`. The base image is replaced by one of Debian's own, made by
`debootstrap` in FOLDER/base and kept, since no registry is needed for that; each step is executed in a copy of it, and
the program that it installed is started as the image's user. It starts no server.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What Debian's own base has in place of the image's: the same interpreter, and pip.
PACKAGES = "python3,python3-pip,ca-certificates"


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Containerfile, each with its arguments, in order."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    found = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, " ".join(rest.split())) for name, _, rest in found]


def make_base(base: Path) -> None:
    """Debian's base, once. Its pip installs packages for all programs, as that of the image does."""
    if not (base / "usr/bin/python3").exists():
        shutil.rmtree(base, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", base], check=True)
    for mark in base.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()


def build(steps: list[tuple[str, str]], root: Path) -> dict[str, str]:
    """Executes the steps in a root folder; returns the settings of the image.

    Raises:
        ValueError: an instruction that this script does not know.
    """
    image: dict[str, str] = {}
    for name, rest in steps:
        print(f"{name} {rest}", flush=True)
        match name:
            case "FROM":
                continue
            case "COPY":
                *sources, target = shlex.split(rest)
                for source in [path for pattern in sources for path in glob.glob(str(ROOT / pattern))]:
                    shutil.copy(source, root / target.lstrip("/"))
            case "RUN":
                subprocess.run(["chroot", root, "/bin/sh", "-c", rest], check=True)
            case "USER" | "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "ENTRYPOINT" | "CMD":
                image[name] = rest
            case _:
                raise ValueError(f"{name}: this script does not know the instruction")
    return image


def main(folder: Path) -> None:
    """Executes the steps in a copy of the base, and asks the program that they installed for its version."""
    folder = folder.resolve()
    base, root = folder / "base", folder / "root"
    for program in ("debootstrap", "chroot"):
        if shutil.which(program) is None or os.getuid() != 0:
            raise SystemExit(f"nothing was tried: it needs root, and the program {program}")
    if not glob.glob(str(ROOT / "dist" / "reverie-*.whl")):
        raise SystemExit("nothing was tried: dist/ has no wheel; make one with `make wheel`")
    make_base(base)
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", base, root], check=True)
    # Names, and the certificates of a proxy between this machine and the package index.
    for file in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
        shutil.copy(f"/{file}", root / file)
    image = build(instructions(ROOT / "deploy" / "Containerfile"), root)
    program = json.loads(image["ENTRYPOINT"])
    subprocess.run(["chroot", f"--userspec={image['USER']}", root, *program, "--help"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
