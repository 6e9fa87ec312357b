"""A dm-reverb server with one table: `capacity sampler`."""

import sys

import reverb

from .wire_payload import TABLE

capacity, sampler = int(sys.argv[1]), sys.argv[2]
table = reverb.Table(
    TABLE,
    sampler=reverb.selectors.Prioritized(0.6) if sampler == "prioritized" else reverb.selectors.Uniform(),
    remover=reverb.selectors.Fifo(),
    max_size=capacity,
    rate_limiter=reverb.rate_limiters.MinSize(1),
)
server = reverb.Server([table], port=None)
print(server.port, flush=True)
sys.stdin.read()
server.stop()
