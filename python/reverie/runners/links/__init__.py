"""Connections between the roles of a run and their supervisor: messages, weights, sockets, credentials."""
