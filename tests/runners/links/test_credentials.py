import pytest

pytest.importorskip("cryptography")
pytest.importorskip("torch")

import reverie
from reverie import testing
from reverie.runners.links.credentials import RunCredentials


def uniform():
    return reverie.Table("t", max_size=10, sampler=reverie.selectors.Uniform(), remover=reverie.selectors.Fifo())


def test_only_clients_with_the_runs_token_and_certificate_reach_a_shard():
    ours, others = RunCredentials.make(), RunCredentials.make()
    options = {"token": ours.token, "tls": ours.server("shard-0.reverie")}
    with testing.host().serve([uniform()], **options) as address:
        tls = ours.client("shard-0.reverie")
        client = reverie.Client(address, transport="grpc", token=ours.token, tls=tls, patience=100.0)
        client.insert({"n": 1}, {"t": 1.0}, timeout=200)
        assert client.info().tables["t"].current_size == 1
        client.close()
        for token in (None, others.token):
            with pytest.raises(reverie.UnauthenticatedError):
                reverie.Client(address, transport="grpc", token=token, tls=tls, patience=100.0).info()
        for wrong in (others.client("shard-0.reverie"), ours.client("shard-1.reverie"), None):
            with pytest.raises((reverie.UnauthenticatedError, reverie.UnavailableError, reverie.ProtocolError)):
                reverie.Client(address, transport="grpc", token=ours.token, tls=wrong, patience=1.0).info()


def test_shared_memory_on_the_same_host_requires_the_token_too():
    trust = RunCredentials.make()
    options = {"token": trust.token, "tls": trust.server("shard-0.reverie")}
    with testing.host().serve([uniform()], **options) as address:
        tls = trust.client("shard-0.reverie")
        assert reverie.Client(address, token=trust.token, tls=tls, patience=100.0).info().transport == "shared-memory"
        with pytest.raises(reverie.UnauthenticatedError):
            reverie.Client(address, tls=tls, patience=100.0).info()
