"""The Valkey engine on shared and sharded servers: objects, TLS, users, clusters, jobs side by side."""

import json
import select
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.ledger._valkey import link
from scaler.ledger._valkey.acl import rules_of
from scaler.ledger._valkey.address import parse_url
from scaler.ledger.audit import audit
from scaler.ledger.contract import CommitOutcome, LedgerRefused, LedgerUnavailable
from scaler.ledger.registry import open_for_reading, open_ledger
from scaler.ledger.valkey import ValkeyLedger
from tests.builders.ledger import (
    READY,
    TTL_S,
    beat_of,
    commit_of,
    delta,
    groups,
    identity,
    lease_all,
    release_of,
    run_units,
    settings,
    version,
)
from tests.builders.valkey_server import ValkeyServer, free_port, ready, valkey_server


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


# --- objects ----------------------------------------------------------------------------------------------------------


def test_large_bodies_go_to_the_object_folder_and_are_deleted_once_nothing_names_them(
    server: ValkeyServer, tmp_path: Path
) -> None:
    ledger = ready(f"{server.url}?objects={tmp_path}")
    ledger.put_units(groups(2))
    leases = lease_all(ledger, "w1", 4)
    ledger.commit("w1", [commit_of(lease, tokens=10_000) for lease in leases])
    repeated = ledger.commit("w1", [commit_of(lease, tokens=10_001) for lease in leases])
    assert repeated == (CommitOutcome.ALREADY,) * 4
    assert list(tmp_path.iterdir())
    epoch = ledger.attach_trainer("t")
    for _ in range(2):
        ledger.compact()
        batch = ledger.take_batch(epoch, 1, 0, 1)
        assert batch is not None
        assert [len(sample.tokens) for sample in batch.groups[0].samples] == [10_000, 10_000]
        ledger.ack_batch(epoch, [batch.batch_id])

    ledger.compact()
    assert list(tmp_path.iterdir()) == []


def test_a_large_body_without_an_object_folder_is_refused_with_the_remedy(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    ledger.put_units(groups(1))
    (lease,) = lease_all(ledger, "w1", 1)
    with pytest.raises(LedgerRefused, match="objects="):
        ledger.commit("w1", [commit_of(lease, tokens=10_000)])


# --- TLS and users ----------------------------------------------------------------------------------------------------


def user_url(server: ValkeyServer, role: str) -> str:
    return server.url.replace("valkey://", f"valkey://{role}:secret@")


@pytest.fixture
def roles(server: ValkeyServer) -> ValkeyServer:
    with server.client() as client:
        for role, rules in rules_of("job").items():
            client.execute_command("ACL", "SETUSER", role, "on", ">secret", *rules.split())
    return server


def test_each_role_can_do_what_it_calls_for(roles: ValkeyServer) -> None:
    controller = open_ledger(user_url(roles, "controller"), "job")
    controller.configure(settings())
    worker = open_ledger(user_url(roles, "worker"), "job")
    worker.register(identity("w1"))
    trainer = open_ledger(user_url(roles, "trainer"), "job")
    trainer.put_units(groups(4))
    run_units(worker, "w1", 4)
    (held, other) = lease_all(worker, "w1", 2)
    worker.heartbeat("w1", [beat_of(held, delta(0, 2))], READY, TTL_S)
    worker.release("w1", [release_of(other)])
    epoch = trainer.attach_trainer("t")
    batch = trainer.take_batch(epoch, 2, 0, 1)
    assert batch is not None
    assert trainer.ack_batch(epoch, [batch.batch_id]) == 1
    trainer.publish(epoch, version(9))
    assert controller.drain("w1", 10.0, "notice", 1)
    controller.release_worker("w1", release_of(held).reason, 1)
    assert controller.stats().accepted == 4
    assert controller.workers()
    controller.expire()
    controller.compact()
    assert audit(controller).findings == ()


@pytest.mark.parametrize(
    ("role", "call"),
    [
        ("worker", lambda ledger: ledger.configure(settings(max_staleness=9))),
        ("worker", lambda ledger: ledger.ack_batch(1, [1])),
        ("controller", lambda ledger: ledger.ack_batch(1, [1])),
    ],
    ids=["worker configures", "worker acknowledges", "controller acknowledges"],
)
def test_no_role_can_do_what_is_not_its_own(roles: ValkeyServer, role: str, call) -> None:  # type: ignore[no-untyped-def]
    owner = ready(roles.url)
    owner.put_units(groups(1))
    run_units(owner, "w1", 2)
    assert owner.take_batch(owner.attach_trainer("t"), 1, 0, 1) is not None
    with pytest.raises(LedgerRefused):
        call(open_ledger(user_url(roles, role), "job"))
    assert owner.stats().accepted == 0


def test_no_role_reaches_another_job(roles: ValkeyServer) -> None:
    with pytest.raises(LedgerRefused):
        open_ledger(user_url(roles, "trainer"), "other")


def test_a_wrong_password_is_refused(roles: ValkeyServer) -> None:
    with pytest.raises(LedgerRefused, match="denies"):
        open_ledger(user_url(roles, "worker").replace("secret", "guess"), "job")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_a_secured_connection_checks_the_server(server: ValkeyServer, tmp_path: Path) -> None:
    _certificate(tmp_path)
    with _secured(server, tmp_path) as port:
        url = f"valkeys://localhost:{port}/0"
        assert ready(f"{url}?ca={tmp_path / 'cert.pem'}").stats().store_epoch == 1
        with pytest.raises(LedgerUnavailable, match="certificate"):
            open_ledger(url, "job")


@contextmanager
def _secured(server: ValkeyServer, folder: Path) -> Iterator[int]:
    """A port that ends TLS before the server, which was built without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with (
                suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as outside,
                socket.create_connection(("127.0.0.1", server.port)) as inside,
            ):
                while readable := select.select([outside, inside], [], [])[0]:
                    news = readable[0].recv(65536)
                    if not news:
                        return
                    (inside if readable[0] is outside else outside).sendall(news)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as relay:
        relay.daemon_threads = True
        thread = threading.Thread(target=relay.serve_forever)
        thread.start()
        try:
            yield relay.server_address[1]
        finally:
            relay.shutdown()
            thread.join()


def _certificate(folder: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)


# --- shards -----------------------------------------------------------------------------------------------------------


@contextmanager
def cluster() -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    """Two primaries with half of the slots each."""
    buses = (free_port(), free_port())
    one_options, two_options = ({"cluster-enabled": "yes", "cluster-port": str(bus)} for bus in buses)
    with valkey_server(one_options) as one, valkey_server(two_options) as two:
        with one.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        with two.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", one.port, buses[0])
        for server in (one, two):
            with server.client() as client:
                while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                    pass
        yield one, two


def test_jobs_spread_over_shards_and_any_primary_knows_where() -> None:
    with cluster() as servers:
        for name in ("a", "b", "c", "d"):
            for server in servers:
                ledger = open_ledger(server.url, name)
                ledger.configure(settings())
                ledger.put_units(groups(1))
                assert ledger.stats().pending == 2
        kept = []
        for server in servers:
            with server.client() as client:
                kept.append({key.split(b":")[1] for key in client.scan_iter()})

    assert set.union(*kept) == {b"{a}", b"{b}", b"{c}", b"{d}"}
    assert not kept[0] & kept[1]
    assert all(kept)


# --- bookkeeping ------------------------------------------------------------------------------------------------------


def test_jobs_of_one_server_share_nothing(server: ValkeyServer) -> None:
    one, other = ready(server.url), open_ledger(server.url, "other")
    other.configure(settings())
    one.put_units(groups(1))
    assert (one.stats().pending, other.stats().pending) == (2, 0)
    with server.client() as client:
        assert {key.split(b":")[1] for key in client.scan_iter()} == {b"{job}", b"{other}"}


def test_a_history_names_groups_with_any_characters(server: ValkeyServer) -> None:
    ledger = ready(server.url)
    odd = "a.0/b\n c\t{}ü"
    ledger.put_units([replace(unit, group_id=odd) for unit in groups(1)])
    run_units(ledger, "w1", 2)
    subjects = [entry.subject for event in ledger.history() for entry in event.entries]
    assert subjects == [f"{odd}.0/0", f"{odd}.0/1"] * 3
    assert audit(ledger).findings == ()


def test_a_reader_creates_nothing_and_raises_no_epoch(server: ValkeyServer) -> None:
    with pytest.raises(LedgerRefused, match="no job 'job'"):
        open_for_reading(server.url, "job")
    with server.client() as client:
        assert list(client.scan_iter()) == []
    ready(server.url).put_units(groups(1))
    server.kill()
    server.start()

    reader = open_for_reading(server.url, "job")

    assert (reader.stats().store_epoch, reader.stats().pending) == (1, 2)
    assert audit(reader).findings == ()


def test_the_library_is_named_by_its_text() -> None:
    text, prefix = link.library()
    assert text.startswith(f"#!lua name={prefix}lib\n")
    assert json.dumps(prefix)


def test_a_client_for_tests_brings_its_clock(server: ValkeyServer) -> None:
    ledger = ValkeyLedger(parse_url(server.url), "job", now_s=lambda: 123.5)
    ledger.configure(settings())
    assert ledger.stats().at_s == 123.5
