"""Builds the image of `deploy/Containerfile` with podman, and uses its server from outside: `make try-image`.

Then it does the same with the pod of `deploy/kubernetes.yml`, as `podman kube play` makes it.

As root on Debian, with the packages podman, runc, catatonit (for pods), debootstrap and openssl: `python
tools/containerfile.py FOLDER`. No registry is needed: the image that `FROM` names is replaced by one of Debian's own,
made by `debootstrap` in FOLDER/base and kept. Images and containers are in FOLDER/engine, apart from podman's others.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

import reverie

ROOT = Path(__file__).resolve().parents[1]
#: Packages of the Debian base that stand for the contents of the image's base: an interpreter, and pip.
PACKAGES = "python3,python3-pip,ca-certificates"
PROGRAMS = ("debootstrap", "podman", "runc", "openssl")
IMAGE = "localhost/reverie:try"
#: Files and processes that a container may have.
LIMIT = 4096
#: Seconds after which something that must happen did not.
PATIENT = 120
#: Seconds within which SIGTERM must have ended a server without waiting clients.
GRACE = 20


def make_base(base: Path) -> None:
    """Debian's base, once. Its pip installs packages for all programs, as that of the image does."""
    if not (base / "usr/bin/python3").exists():
        shutil.rmtree(base, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", base], check=True)
    for mark in base.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    # The certificates of a proxy between this machine and the package index.
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", base / "etc/ssl/certs/ca-certificates.crt")


class Podman:
    """Podman with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "containers.conf").write_text(
            '[containers]\nlog_driver = "k8s-file"\n'
            f'default_ulimits = ["nofile={LIMIT}:{LIMIT}", "nproc={LIMIT}:{LIMIT}"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        # Limits that a machine without special rights may set, too. The server needs a file for each connection.
        self.ulimits = [f"--ulimit=nofile={LIMIT}:{LIMIT}", f"--ulimit=nproc={LIMIT}:{LIMIT}"]
        self._environment = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        self._command = ["podman", f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}"]

    def __call__(self, *arguments: str | Path, check: bool = True, feed: str | None = None) -> str:
        """Runs a command; returns its output."""
        ended = subprocess.run(
            [*self._command, *map(str, arguments)],
            env=self._environment,
            input=feed,
            stdout=subprocess.PIPE,
            text=True,
            check=check,
        )
        return ended.stdout.strip()


def build(podman: Podman, folder: Path) -> None:
    """Builds the image on Debian's base, under the name that `FROM` has."""
    [wheel] = glob.glob(str(ROOT / "dist" / "reverie-*.whl"))
    [base] = [
        line.split()[1] for line in (ROOT / "deploy/Containerfile").read_text().splitlines() if "FROM " in line[:5]
    ]
    context = folder / "context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "dist").mkdir(parents=True)
    shutil.copy(wheel, context / "dist")
    subprocess.run(["tar", "-C", folder / "base", "-cf", folder / "base.tar", "."], check=True)
    podman("import", folder / "base.tar", f"docker.io/library/{base}")
    (folder / "base.tar").unlink()
    containerfile = ROOT / "deploy/Containerfile"
    # `--network=host`: the package index is reached as this machine reaches it.
    print(
        podman("build", "--pull=never", "--network=host", *podman.ulimits, "-f", containerfile, "-t", IMAGE, context),
        flush=True,
    )


def make_secrets(folder: Path) -> None:
    """The token, and a certificate for 127.0.0.1, readable by the image's user."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text("a token of sixteen characters or more")
    names = ["-subj", "/CN=reverie", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder / "tls.key"]
    made = ["openssl", "req", "-x509", "-days", "2", *key, *names, "-out", folder / "tls.crt"]
    subprocess.run(made, check=True, capture_output=True)
    for file in folder.iterdir():
        os.chown(file, 10001, 10001)
        file.chmod(0o440)


class Outside:
    """The server in the container, as other machines see it: through the ports that it publishes."""

    def __init__(self, secrets: Path, data: str, http: str) -> None:
        self._secrets, self.data, self.http = secrets, data, http
        self._tls = ssl.create_default_context(cafile=secrets / "tls.crt")

    def read(self, path: str, *, token: bool) -> tuple[int, str]:
        """The status and the text of an HTTP path; the status 0 while nothing listens."""
        headers = {"Authorization": f"Bearer {(self._secrets / 'token').read_text()}"} if token else {}
        request = urllib.request.Request(f"https://{self.http}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0, ""

    def client(self) -> reverie.Client:
        """A client of the data port."""
        tls = reverie.ClientTLS(ca=self._secrets / "tls.crt")
        return reverie.Client(self.data, token=(self._secrets / "token").read_text(), tls=tls, timeout=PATIENT)

    def wait(self) -> None:
        """Waits until it is ready."""
        since = time.monotonic()
        while self.read("/readyz", token=False)[0] != 200:
            if time.monotonic() - since > PATIENT:
                raise SystemExit("the server did not become ready")
            time.sleep(0.2)


@contextlib.contextmanager
def started(podman: Podman, secrets: Path, volume: str) -> Iterator[Outside]:
    """The image's server, run by the command in the file's head; afterwards SIGTERM must end it within its grace."""
    run = podman(
        "run", "--detach", "--pull=never", "--read-only", *podman.ulimits, "--publish=127.0.0.1::8000",
        "--publish=127.0.0.1::9090",
        f"--volume={secrets}:/run/secrets/reverie:ro", f"--volume={volume}:/data", IMAGE,
    )  # fmt: skip
    try:
        outside = Outside(secrets, podman("port", run, "8000"), podman("port", run, "9090"))
        outside.wait()
        yield outside
        since = time.monotonic()
        podman("stop", f"--time={PATIENT}", run)
        took, status = time.monotonic() - since, podman("inspect", "--format={{.State.ExitCode}}", run)
        print(f"SIGTERM: exit status {status} after {took:.1f} s", flush=True)
        if status != "0" or took > GRACE:
            raise SystemExit("the server was not ended by SIGTERM")
    finally:
        print(podman("logs", run, check=False), flush=True)
        podman("rm", "--force", run)


@contextlib.contextmanager
def played(podman: Podman, folder: Path) -> Iterator[Outside]:
    """The pod of the manifests' set, with its claim and the tables of its ConfigMap.

    Not tried, since podman does not have it: the set itself, its secret, the NetworkPolicy, and probes without systemd.
    """
    documents = {one["kind"]: one for one in yaml.safe_load_all((ROOT / "deploy/kubernetes.yml").read_text())}
    of_set = documents["StatefulSet"]["spec"]
    metadata, spec = of_set["template"]["metadata"], of_set["template"]["spec"]
    [claim], [container] = of_set["volumeClaimTemplates"], spec["containers"]
    name = claim["metadata"]["name"]
    spec["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": name}})
    for volume in spec["volumes"]:
        if "secret" in volume:  # podman 4.3 does not decode the files of a secret
            del volume["secret"]
            volume["hostPath"] = {"path": str(folder / "secrets"), "type": "Directory"}
        if "configMap" in volume:
            volume["configMap"]["optional"] = False  # podman 4.3 ends by a panic where it is not given
    container |= {"image": IMAGE, "imagePullPolicy": "Never"}
    ports = {}
    for port in container["ports"]:
        port["hostPort"] = ports[port["name"]] = free_port()
        port["hostIP"] = "127.0.0.1"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reverie", **metadata}, "spec": spec}
    kept = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim["spec"]}
    file = folder / "pod.yml"
    file.write_text(yaml.safe_dump_all([documents["ConfigMap"], kept, pod]))
    try:
        print(podman("kube", "play", file), flush=True)
        outside = Outside(folder / "secrets", f"127.0.0.1:{ports['replay']}", f"127.0.0.1:{ports['http']}")
        outside.wait()
        yield outside
    finally:
        print(podman("logs", f"reverie-{container['name']}", check=False), flush=True)
        podman("kube", "down", file, check=False)
        podman("volume", "rm", "--force", name, check=False)


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def expect(what: str, found: object, wanted: object) -> None:
    """Prints what was found; ends the program if it is something else."""
    print(f"{what}: {found}", flush=True)
    if found != wanted:
        raise SystemExit(f"{what}: {found}, and not {wanted}")


def use(outside: Outside, insert: int = 1) -> None:
    """Health, metrics and the page over HTTP, and inserts and a sample over the data port."""
    for path, token, status in (
        ("/livez", False, 200),
        ("/metrics", False, 401),
        ("/metrics", True, 200),
        ("/", False, 200),
    ):
        expect(f"{path} {'with' if token else 'without'} the token", outside.read(path, token=token)[0], status)
    with outside.client() as client:
        [table] = client.info().tables
        client.insert_batch(table, {"obs": np.tile(np.arange(3, dtype=np.float32), (insert, 1))})
        expect("a sample", client.sample_batch(table, 1).data["obs"].tolist(), [[0.0, 1.0, 2.0]])
    metrics = outside.read("/metrics", token=True)[1]
    expect("reverie_inserts_total", f'reverie_inserts_total{{table="{table}"}} {insert}' in metrics, True)


def main(folder: Path) -> None:
    """Builds the image, uses its server, ends it, and starts another with its volume."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.getuid() != 0:
        raise SystemExit(f"nothing was tried: it needs root, and the programs {', '.join(missing or PROGRAMS)}")
    if len(glob.glob(str(ROOT / "dist" / "reverie-*.whl"))) != 1:
        raise SystemExit("nothing was tried: dist/ must have one wheel; make it with `make wheel`")
    make_base(folder / "base")
    make_secrets(folder / "secrets")
    podman = Podman(folder / "engine")
    build(podman, folder)
    volume = podman("volume", "create")
    try:
        with started(podman, folder / "secrets", volume) as outside:
            use(outside)
        with started(podman, folder / "secrets", volume) as outside, outside.client() as client:
            [(name, table)] = client.info().tables.items()
            expect(f"items of {name} after the restart", table.current_size, 1)
            expect("a sample", client.sample_batch(name, 1).data["obs"].tolist(), [[0.0, 1.0, 2.0]])
    finally:
        podman("volume", "rm", volume)
    with played(podman, folder) as outside:
        use(outside, insert=1_000)
    print("the image's server works as its guide describes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
