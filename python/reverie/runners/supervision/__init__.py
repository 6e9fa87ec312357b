"""The supervisor of a run: it starts the roles, restarts those that end, evaluates and saves."""
