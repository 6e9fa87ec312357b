"""A robot and its learner, after HIL-SERL (Luo et al. 2024): two cameras at 10 Hz, interventions, TLS, an outage.

The control loop never waits for the network: a thread of its own sends the steps. The learner, in a process that stands
for another machine, answers nothing for `--outage` seconds. It needs the command openssl. See docs/guides/robots.md.
"""

import argparse
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import reverie
from reverie.parameters import TableChannel

HZ, MAX_WAITING, SHAPE = 10, 600, (128, 128, 3)
POLICY = {"weights": np.zeros((2, 4), np.float32)}


def make_credentials(folder: Path) -> None:
    """A token, and a certificate of the learner's machine that signs itself."""
    (folder / "token").write_text(os.urandom(32).hex())
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=learner", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", "req", "-x509", *curve, *name, *files], check=True, capture_output=True)


class Sender(threading.Thread):
    """Sends steps in the background, as transitions. `put` never waits."""

    def __init__(self, client: reverie.Client) -> None:
        super().__init__(daemon=True)
        self.client, self.refused, self.expected, self._gap = client, 0, 0, True
        self._steps: queue.Queue[dict[str, np.ndarray] | None] = queue.Queue(MAX_WAITING)

    def put(self, step: dict[str, np.ndarray]) -> None:
        """Hands over a step. If `MAX_WAITING` steps wait, it is refused and counted. No transition crosses a gap."""
        try:
            self._steps.put_nowait({**step, "first": np.bool_(self._gap)})
            self.expected, self._gap = self.expected + (not self._gap), bool(step["last"])
        except queue.Full:
            self.refused, self._gap = self.refused + 1, True

    def close(self) -> None:
        """Waits until all steps are in the tables."""
        self._steps.put(None)
        self.join()

    def run(self) -> None:
        """A transition is two neighbouring steps, which share cameras; an intervention is in a second table, too."""
        with self.client.trajectory_writer(num_keep_alive_refs=2) as writer:
            intervened = False
            while (step := self._steps.get()) is not None:
                writer.append(step)
                before, intervened = intervened, bool(step["intervention"])
                if step["first"]:
                    continue
                history = writer.history
                pair = {name: history[name][-2:] for name in ("wrist", "scene", "joints", "step")}
                pair |= {name: history[name][-2] for name in ("action", "reward", "done", "intervention")}
                writer.create_item("replay", 1.0, pair)
                if before:
                    writer.create_item("interventions", 1.0, pair)


class Policies(threading.Thread):
    """Fetches the newest policy in the background."""

    def __init__(self, client: reverie.Client) -> None:
        super().__init__(daemon=True)
        self.newest, self.version, self.stop = POLICY, None, False
        self._subscriber = TableChannel(client).subscriber(like=POLICY)

    def run(self) -> None:
        """Waits for one policy after another; through an outage the robot acts with the last one."""
        while not self.stop:
            try:
                found = self._subscriber.get(newer_than=self.version, timeout=1.0)
            except (reverie.UnavailableError, reverie.DeadlineExceededError):
                continue
            self.newest, self.version = found.arrays, found.version


class Arm:
    """A simulated arm that has to reach a place, seen by two cameras."""

    def __init__(self) -> None:
        self.rng, self.at, self.goal = np.random.default_rng(1), np.zeros(2), np.ones(2)

    def observe(self) -> dict[str, np.ndarray]:
        """Two images, and where the arm and its goal are."""
        wrist, scene = (self.rng.integers(0, 255, SHAPE, dtype=np.uint8) for _ in range(2))
        return {"wrist": wrist, "scene": scene, "joints": np.concatenate([self.at, self.goal]).astype(np.float32)}

    def step(self, action: np.ndarray) -> bool:
        """Moves by at most 0.1 along each axis. True where the goal is reached."""
        self.at = self.at + np.clip(action, -0.1, 0.1)
        return bool(np.abs(self.goal - self.at).max() < 0.15)

    def reset(self) -> None:
        """Back to the start, with another goal."""
        self.at, self.goal = np.zeros(2), self.rng.uniform(-1, 1, 2)


def act(sender: Sender, policies: Policies, learner: int, outage: float) -> float:
    """The control loop. Returns the longest time, in seconds, that a turn of it gave to the replay buffer."""
    arm, longest, start, done = Arm(), 0.0, time.monotonic(), False
    begin = 2 * HZ
    end = begin + int(outage * HZ)
    for number in range(end + 3 * HZ):
        if number in (begin, end):
            os.kill(learner, signal.SIGSTOP if number == begin else signal.SIGCONT)
        observation, last = arm.observe(), done
        action = policies.newest["weights"] @ observation["joints"]
        human = np.clip(arm.goal - arm.at, -0.1, 0.1).astype(np.float32)
        intervention = bool(np.abs(action - human).max() > 0.05)  # a person takes over where the policy errs
        action = human if intervention else action
        if last:  # An episode has ended: this step only holds its last observation.
            arm.reset()
        done = not last and arm.step(action)
        flags = {"done": np.bool_(done), "last": np.bool_(last), "intervention": np.bool_(intervention)}
        step = {**observation, **flags, "action": action, "reward": np.float32(done), "step": np.int64(number)}
        before = time.monotonic()
        sender.put(step)
        longest = max(longest, time.monotonic() - before)
        time.sleep(max(0.0, start + (number + 1) / HZ - time.monotonic()))
    return longest


def learn(folder: Path, ends: multiprocessing.connection.Connection) -> None:
    """The learner's machine: the server, and updates from policy steps and interventions in equal parts.

    It imitates interventions with a linear policy. HIL-SERL has SAC here.
    """
    tables = [
        reverie.Table(name, reverie.selectors.Uniform(), reverie.selectors.Fifo(), 100_000)
        for name in ("replay", "interventions")
    ]
    certificate = reverie.ServerTLS(cert=folder / "cert.pem", key=folder / "key.pem")
    token = reverie.Token.from_file(folder / "token")
    with reverie.Server([*tables, reverie.parameters.table()], token=token, tls=certificate) as server:
        ends.send(server.address)
        weights, client = POLICY["weights"].copy(), server.client()
        publisher = TableChannel(client).publisher()
        shares = {"replay": 0.5, "interventions": 0.5}
        with client.batches(shares, 16, columns=["joints", "action", "intervention"]) as batches:
            while not ends.poll(0.02):
                batch = next(batches)
                joints, human = batch.data["joints"][:, 0], batch.data["intervention"][:, None]
                error = (joints @ weights.T - batch.data["action"]) * human
                weights -= 0.2 * error.T @ joints / len(error)
                publisher.publish({"weights": weights})
        ends.recv()


def main(outage: float) -> None:
    """Runs both, and counts what arrived."""
    with tempfile.TemporaryDirectory() as name:
        folder, (ours, theirs) = Path(name), multiprocessing.Pipe()
        make_credentials(folder)
        learner = multiprocessing.get_context("spawn").Process(target=learn, args=(folder, theirs), daemon=True)
        learner.start()
        client = reverie.Client(
            ours.recv(),
            transport="grpc",  # as from another machine
            token=reverie.Token.from_file(folder / "token"),
            tls=reverie.ClientTLS(ca=folder / "cert.pem"),
        )
        sender, policies = Sender(client), Policies(client)
        sender.start()
        policies.start()
        longest = act(sender, policies, learner.pid, outage)
        sender.close()
        policies.stop = True
        policies.join()
        stored = client.get("replay", client.query("replay").key, columns=["step", "intervention"]).data
        helped = client.get("interventions", client.query("interventions").key, columns=["step"]).data["step"][:, 0]
        steps = stored["step"][:, 0]
        print(f"the longest pause of the control loop: {longest * 1e3:.1f} ms of 100; {sender.refused} steps refused")
        print(f"{len(steps)} transitions, {len(helped)} of them interventions; policy {policies.version.number}")
        # Nothing is lost, nothing is there twice, and each intervention is in both tables.
        assert len(set(steps.tolist())) == len(steps) == sender.expected
        assert sorted(steps[stored["intervention"]]) == sorted(helped)
        client.close()
        ours.send("stop")
        learner.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outage", type=float, default=3.0, help="seconds in which the learner answers nothing")
    main(parser.parse_args().outage)
