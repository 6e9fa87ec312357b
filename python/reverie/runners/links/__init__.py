"""How the roles of a run and their supervisor reach each other: messages, weights, sockets, credentials."""
