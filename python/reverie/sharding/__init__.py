"""One replay over several servers, sampled and limited as if it were one table.

```
ShardedClient   client.py    the interface of a Client
  Reach         reach.py     the shards, and a sampler for each table
  Members       members.py   who is there, and which shard a key is of
  Sampler       sampler.py   draws from one table of all shards, and hands rations out
  Prefetch      ahead.py     the same ahead of the reader
shard_table     tables.py    one table's options as those of its shards
```
"""

from reverie.sharding.client import ShardedClient, ShardedInfo, ShardInfo
from reverie.sharding.tables import shard_table

__all__ = ["ShardInfo", "ShardedClient", "ShardedInfo", "shard_table"]
