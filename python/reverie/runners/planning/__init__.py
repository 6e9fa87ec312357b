"""The plan of a run before it starts: its topology, and the nodes and memory that it must fit."""
