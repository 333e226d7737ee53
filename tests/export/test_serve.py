"""The HTTP side: who gets an answer, who does not, and that nobody keeps another one waiting."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from ui.snapshots import NOW, rich

from mpstui.export import serve
from mpstui.export.metrics import Metrics
from mpstui.export.serve import MetricsServer, listen, url
from mpstui.export.webconfig import WebConfigError, WebRules, load

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
Start = Callable[..., "Running"]


class Running:
    """A server of this test, and what it complained of."""

    def __init__(self, rules: WebRules, metrics: Metrics | None = None) -> None:
        self.said: list[str] = []
        self.metrics = metrics or Metrics()
        self.metrics.take(rich(), NOW)
        self.listening = listen("127.0.0.1:0")
        self.port = self.listening.getsockname()[1]
        self.server = MetricsServer(self.metrics, [self.listening], rules, self.said.append)
        self.server.start()

    def get(
        self, path: str = "/metrics", method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            if tls is None
            else http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120, context=tls)
        )
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        told = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return told

    def connect(self, *first: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        for each in first:
            made.sendall(each)
        return made


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as held:

        def run(path: Path | None = None, metrics: Metrics | None = None) -> Running:
            running = Running(WebRules(path), metrics)
            held.callback(running.listening.close)
            held.callback(running.server.close)
            return running

        yield run


def test_a_scrape_gets_the_metrics(start: Start) -> None:
    node = start()
    status, headers, body = node.get()
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"mps_daemon_up{" in body
    status, headers, body = node.get(Accept="application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


def test_the_rest_gets_a_short_answer(start: Start) -> None:
    node = start()
    assert node.get("/")[0] == 200
    assert node.get("/secret")[0] == 404
    assert node.get("/metrics", "POST")[0] == 405
    status, headers, body = node.get("/metrics", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"nonsense\r\n\r\n", b"400"), (b"GET /metrics SMTP\r\n\r\n", b"400"),
     (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
     (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * serve.REQUEST_BYTES, b"431")],
)  # fmt: skip
def test_what_is_no_request_is_told_so(start: Start, sent: bytes, status: bytes) -> None:
    made = start().connect(sent)
    assert made.recv(100).startswith(b"HTTP/1.1 " + status)


def test_who_never_finishes_his_request_is_let_go(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.2)
    made = start().connect(b"GET /metrics HTTP/1.1\r\n")
    assert made.recv(100).startswith(b"HTTP/1.1 408")


def test_who_never_takes_his_answer_is_let_go(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "ANSWER_SECONDS", 0.2)

    class Large(Metrics):
        def rendered(self, accept: str) -> tuple[str, bytes]:
            return "text/plain", b"x" * (64 << 20)

    node = start(metrics=Large())
    made = node.connect(b"GET /metrics HTTP/1.1\r\n\r\n")
    deadline = time.monotonic() + 120
    while not node.server._open and time.monotonic() < deadline:
        pass
    while node.server._open:
        assert time.monotonic() < deadline
    made.close()


def test_a_thousand_who_say_nothing_keep_nobody_out(start: Start) -> None:
    node = start()
    silent = [node.connect(b"GET /metrics HTTP/1.1\r\n") for _ in range(3 * serve.CONNECTIONS)]
    assert node.get()[0] == 200
    assert len(node.server._open) <= serve.CONNECTIONS
    for each in silent:
        each.close()


def test_a_storm_is_rendered_once(start: Start) -> None:
    metrics, made = Metrics(), []
    told = metrics._told
    metrics._told = lambda: made.append(1) or told()  # type: ignore[method-assign,func-returns-value]
    node = start(metrics=metrics)
    statuses: list[int] = []
    crowd = [threading.Thread(target=lambda: statuses.append(node.get()[0])) for _ in range(50)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    assert statuses == [200] * 50
    assert len(made) == 1


def test_a_scrape_does_not_wait_for_whoever_watches_the_node(start: Start) -> None:
    """The watcher's thread is in the midst of a snapshot that never ends."""
    node, hung = start(), threading.Event()
    watcher = threading.Thread(target=hung.wait, args=(120,))
    watcher.start()
    assert node.get()[0] == 200
    hung.set()
    watcher.join()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.slow
def test_a_password_is_asked_for_before_anything_is_told(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prom: {HASH}\n")
    node = start(config)
    for wrong in ("", "Basic", "Basic !!", "Bearer x", basic("prom", "wrong"), basic("other", "secret"), basic("", "")):
        status, headers, body = node.get(Authorization=wrong)
        assert status == 401
        assert "WWW-Authenticate" in headers
        assert b"mps_" not in body
        assert node.get("/nothing", "POST", Authorization=wrong)[0] == 401
    assert node.get(Authorization=basic("prom", "secret"))[0] == 200
    assert node.get(Authorization=basic("prom", "secret"))[0] == 200


def test_a_file_that_was_changed_counts_at_once_and_a_wrong_one_never(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prom: {HASH}\n")
    node = start(config)
    assert node.get(Authorization=basic("prom", "secret"))[0] == 200
    config.write_text("basic_auth_users: [not, a, table]\n")
    assert node.get(Authorization=basic("prom", "secret"))[0] == 200
    assert node.get()[0] == 401
    assert len(node.said) == 1
    assert "basic_auth_users is not a table" in node.said[0]
    for half_written in ("", "http_server_config: {http2: false}\n", "basic_auth_users:\n"):
        config.write_text(half_written)
        assert node.get()[0] == 401
        assert "to remove all passwords takes a restart" in node.said[-1]
    config.write_text(f"basic_auth_users:\n  prom: {HASH}\nhttp_server_config:\n  headers: {{X-Frame-Options: deny}}\n")
    status, headers, _ = node.get(Authorization=basic("prom", "secret"))
    assert (status, headers["X-Frame-Options"]) == (200, "deny")


def test_a_rate_is_kept(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text("rate_limit: {interval: 1h, burst: 3}\n")
    node = start(config)
    assert [node.get()[0] for _ in range(5)] == [200, 200, 200, 429, 429]


TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"


def make_certificate(folder: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", "key.pem", "-out", "cert.pem",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True, timeout=120,
    )  # fmt: skip


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    make_certificate(tmp_path)
    (tmp_path / "web.yml").write_text(TLS)
    return tmp_path / "web.yml"


def test_with_tls_nothing_goes_out_in_the_clear(start: Start, certificate: Path) -> None:
    node = start(certificate)
    trusted = ssl.create_default_context(cafile=certificate.with_name("cert.pem"))
    assert node.get(tls=trusted)[0] == 200
    assert url(node.listening, True).startswith("https://127.0.0.1:")
    plain = node.connect(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert b"mps_" not in plain.recv(1000)
    with pytest.raises(ssl.SSLError):
        node.get(tls=ssl.create_default_context())


def test_who_never_begins_with_tls_keeps_no_descriptor(
    start: Start, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 1000.0)
    monkeypatch.setattr(serve, "CONNECTIONS", 8)
    node = start(certificate)
    silent = [node.connect() for _ in range(40)]
    for each in silent[:32]:
        with suppress(ConnectionError):
            assert each.recv(1) == b"", "the oldest goes first"
    assert node.get(tls=ssl.create_default_context(cafile=certificate.with_name("cert.pem")))[0] == 200
    for each in silent:
        each.close()


def test_a_certificate_of_the_client_is_asked_for(start: Start, certificate: Path) -> None:
    certificate.write_text(
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem, "
        "client_auth_type: RequireAndVerifyClientCert}\n"
    )
    node, folder = start(certificate), certificate.parent
    trusted = ssl.create_default_context(cafile=folder / "cert.pem")
    with pytest.raises((OSError, http.client.HTTPException)):
        node.get(tls=trusted)
    shown = ssl.create_default_context(cafile=folder / "cert.pem")
    shown.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    assert node.get(tls=shown)[0] == 200
    whole = certificate.read_text()
    for half_written in (TLS, TLS + "basic_auth_users:\n"):
        certificate.write_text(half_written)
        assert node.get(tls=shown)[0] == 200
        assert "to make client certificates optional takes a restart" in node.said[-1]
        with pytest.raises((OSError, http.client.HTTPException)):
            node.get(tls=trusted)
    certificate.write_text(whole)


def test_a_certificate_that_nobody_took_is_replaced_while_it_runs(start: Start, certificate: Path) -> None:
    """Whoever scrapes ends the handshake with an outdated one; nor has one that is no more believed a say."""
    folder = certificate.parent
    certificate.write_text(
        f"{TLS.rstrip()[:-1]}, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}}\n"
    )
    first, second = ((folder / name).read_bytes() for name in ("cert.pem", "key.pem"))
    (folder / "ca.pem").write_bytes(first)
    node = start(certificate)
    before = ssl.create_default_context(cafile=folder / "cert.pem")
    before.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    assert node.get(tls=before)[0] == 200
    make_certificate(folder)
    (folder / "ca.pem").write_bytes((folder / "cert.pem").read_bytes())
    after = ssl.create_default_context(cafile=folder / "cert.pem")
    after.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    assert node.get(tls=after)[0] == 200
    assert node.said == []
    (folder / "old.pem").write_bytes(first + second)
    after.load_cert_chain(folder / "old.pem")
    with pytest.raises((OSError, http.client.HTTPException)):
        node.get(tls=after)
    certificate.write_text(TLS.replace("cert.pem", "later.pem").rstrip()[:-1] + certificate.read_text()[len(TLS) - 2 :])
    with pytest.raises((OSError, http.client.HTTPException)):
        node.get(tls=ssl.create_default_context(cafile=folder / "ca.pem"))
    assert "later.pem" in node.said[-1]
    make_certificate(folder)
    (folder / "later.pem").write_bytes((folder / "cert.pem").read_bytes())
    (folder / "ca.pem").write_bytes((folder / "cert.pem").read_bytes())
    last = ssl.create_default_context(cafile=folder / "later.pem")
    last.load_cert_chain(folder / "later.pem", folder / "key.pem")
    assert node.get(tls=last)[0] == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_server_config: {cert_file: c}", "key_file is missing"),
        ("tls_server_config: {cert_file: no.pem, key_file: no.pem}", "cannot be used"),
        ("tls_server_config: {cert_file: c, key_file: k, client_auth_type: Maybe}", "client_auth_type is one of"),
        ("tls_server_config: {cert_file: c, key_file: k, client_ca_file: x}", "client_ca_file belongs"),
        ("tls_server_config: {cert_file: c, key_file: k, client_allowed_sans: [x]}", "client_allowed_sans is not"),
        ("tls_server_config: {cert_file: c, key_file: k, min_version: TLS10}", "TLS12 or TLS13"),
        ("basic_auth_users: {a: plain}", "no bcrypt hash"),
        ("basic_auth_user: {}", "is not known"),
        ("http_server_config: {headers: {X-Frame-Options: \"a\\r\\nb\"}}", "one line"),
        ("http_server_config: {headers: {Set-Cookie: a}}", "is not known"),
        ("rate_limit: {interval: soon}", "interval is a time"),
        ("rate_limit: {interval: 1s, burst: true}", "interval is a time"),
        ("- a", "not a table"),
        ("[]", "not a table"),
        ("false", "not a table"),
        ("basic_auth_users: []", "not a table"),
        ("tls_server_config: ''", "not a table"),
        ("rate_limit: 0", "not a table"),
        ("tls_server_config: {cert_file: /dev/zero, key_file: k}", "/dev/zero is not a file"),
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.system [id]", "is not YAML"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_says_why(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "web.yml"
    config.write_text(text)
    with pytest.raises(WebConfigError, match=said):
        WebRules(config)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("root:\n  secret: 20228\n", "the file: its key 1 is not known"),
        ("rate_limit: {}\nroot:*:20228: secret\n", "the file: its key 2 is not known"),
        ("a: 1\nb: *secret\n", "line 2"),
        ("a: !secret 1", "line 1"),
        ('a: "\\secret"', "line 1"),
        ("a: \u0001secret", "is not YAML"),
    ],
)
def test_of_a_file_that_is_no_configuration_nothing_is_printed(tmp_path: Path, text: str, where: str) -> None:
    """In a directory of somebody else's it may be a link to any file of root's."""
    (tmp_path / "web.yml").write_text(text)
    with pytest.raises(WebConfigError, match=where) as told:
        load(tmp_path / "web.yml")
    assert not any(word in str(told.value) for word in ("secret", "root", "20228"))


@pytest.mark.parametrize(("mode", "folder"), [(0o666, 0o755), (0o644, 0o777)])
def test_a_configuration_that_others_may_change_is_refused_as_others_are(
    tmp_path: Path, mode: int, folder: int
) -> None:
    """Whoever writes it lets himself in."""
    (config := tmp_path / "web.yml").write_text("rate_limit: {interval: 1s}\n")
    rules = WebRules(config)
    config.chmod(mode)
    tmp_path.chmod(folder)
    with pytest.raises(WebConfigError, match="can be changed by everybody"):
        load(config)
    config.write_text("rate_limit: {interval: 20s}\n")
    assert "what was read before stays in force" in (rules.reload() or "")
    assert rules.config.interval == 1


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_text("#" * (300 << 10))
    for name, said in (("fifo", "not a file"), ("large", "larger"), ("none", "No such file"), (".", "directory")):
        with pytest.raises(WebConfigError, match=said):
            load(tmp_path / name)


@pytest.mark.parametrize("address", ["9936", "host:", ":x", "a:99999", "a:-1", "127.0.0.1:٣"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        listen(address)


def test_each_kind_of_address_can_be_listened_on() -> None:
    for address in (":0", "localhost:0", "[::1]:0"):
        try:
            listening = listen(address)
        except OSError:
            if address == "[::1]:0":
                continue  # a machine without IPv6
            raise
        assert url(listening, False).startswith("http://")
        listening.close()


def test_importing_the_program_brings_none_of_it() -> None:
    program = "import sys, mpstui.cli.parser as p; p.build_parser(); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert not {"prometheus_client", "yaml", "bcrypt", "mpstui.export"} & set(told.stdout.split())


def test_what_takes_a_certificates_place_while_it_is_read_is_not_waited_for(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO there held up every scrape."""
    read = ssl.SSLContext.load_cert_chain

    def exchanged(context: ssl.SSLContext, *names: str, **more: Any) -> None:
        for name in ("cert.pem", "key.pem"):
            (tmp_path / name).unlink()
            (tmp_path / name).write_text("no certificate")
        read(context, *names, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", exchanged)
    assert load(certificate).context() is not None
