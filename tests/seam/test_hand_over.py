"""A batch that went back to its table while its Python object was made does not reach the program, too."""

import subprocess
import sys

CODE = """
import itertools
import sys

import numpy as np

import reverie
from reverie import types


class Slow(types.Batch):
    __slots__ = ()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if later := meanwhile.pop(0):
            later()


def serve():
    table = reverie.Table.queue("q", max_size=10)
    return reverie.Server([table], listen=False, journal=reverie.Journal(sys.argv[1]))


types.Batch, server = Slow, serve()
client = server.client()
client.insert_batch("q", {"n": np.arange(4)})
meanwhile = [None, server.stop]  # as another thread could
batches, got = client.batches("q", 1, prefetch=2), []
try:
    for batch in batches:
        got += batch.data["n"].tolist()
except reverie.ClosedError:
    got.append("closed")
meanwhile = [None] * 4
with serve() as server:
    got += [server.client().sample_batch("q", 1).data["n"].item() for _ in range(3)]
print(got)
"""


def test_a_batch_whose_table_was_closed_while_it_was_made_is_the_next_servers(tmp_path):
    command = [sys.executable, "-c", CODE, str(tmp_path / "journal")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout == "[0, 'closed', 1, 2, 3]\n", done.stderr
