"""What a run needs, before it runs: its topology, and the nodes and memory that it must fit."""
