"""A Reverie server with one table: `capacity sampler [shard]`."""

import sys

import reverie

from .wire_payload import TABLE

capacity, sampler = int(sys.argv[1]), sys.argv[2]
shard = int(sys.argv[3]) if len(sys.argv) > 3 else 0
table = reverie.Table(
    TABLE,
    sampler=reverie.selectors.Prioritized(0.6) if sampler == "prioritized" else reverie.selectors.Uniform(),
    remover=reverie.selectors.Fifo(),
    max_size=capacity,
    rate_limiter=reverie.rate_limiters.MinSize(1),
)
with reverie.Server([table], port=None, shard=shard) as server:
    print(server.port, flush=True)
    sys.stdin.read()
