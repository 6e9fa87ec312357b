"""The client: inserts, samples, priorities, figures. One file per word of the flow."""

from reverie.client.client import _LISTENING, Client, Transport
from reverie.writers import Writer

__all__ = ["_LISTENING", "Client", "Transport", "Writer"]
