"""Adapters: the only files below the agents that import a framework; each is imported on its own."""
