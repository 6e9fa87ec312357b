"""The same network's update in plain PyTorch on one batch that never changes; the last line of stdout is JSON."""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch.nn import functional

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.apex_dqn.networks import make_network
from reverie.agents.environments import describe

WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    spec = describe("ALE/Pong-v5")
    config = apex_dqn.load_preset(spec.env_id).config
    # The layers alone: what holds and steps their parameters here is PyTorch's own.
    online, target = (make_network(spec, config, seed=0, trainable=trains).module for trains in (True, False))
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, eps=1.5e-4, fused=True)
    generator = torch.Generator().manual_seed(0)
    frames = [
        torch.randint(0, 256, (options.batch, 4, 84, 84), dtype=torch.uint8, generator=generator) for _ in range(2)
    ]
    actions = torch.randint(0, 6, (options.batch, 1), generator=generator)
    rewards, discounts = torch.randn(options.batch, generator=generator), torch.full((options.batch,), 0.97)

    def update() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            with torch.no_grad():
                best = online(frames[1]).argmax(1, keepdim=True)
                goal = rewards + discounts * target(frames[1]).float().gather(1, best).squeeze(1)
            q = online(frames[0]).float().gather(1, actions).squeeze(1)
        loss = functional.huber_loss(q, goal)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), 40.0)
        optimizer.step()

    for _ in range(WARM_UP):
        update()
    began, updates = time.perf_counter(), 0
    while time.perf_counter() - began < options.seconds:
        update()
        updates += 1
    rate = updates * options.batch / (time.perf_counter() - began)
    what = f"dueling 3.3 M, {options.batch}, no replay, no environment"
    print(
        json.dumps(
            {"version": torch.__version__, "what": what, "env_steps_per_second": None, "samples_per_second": rate}
        )
    )


if __name__ == "__main__":
    main()
