"""The web configuration file of Prometheus' exporters: TLS, users with their hashed passwords, headers, a rate.

The form is that of the exporter toolkit, so that one file serves all exporters of a node. What is written there and
not known here is refused, because it may be what keeps somebody out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import ssl
import stat
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from mpstui.config import PrivateFileError, judge_own_file
from mpstui.core.late import dataclass
from mpstui.core.text import error_text, path_text, printable

FILE_LIMIT: Final = 256 * 1024
_VERSIONS: Final = {
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_TLS_KEYS: Final = frozenset(
    {"cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version"}
)
_HEADERS: Final = frozenset(
    {"Strict-Transport-Security", "X-Content-Type-Options", "X-Frame-Options", "X-XSS-Protection",
     "Content-Security-Policy"}
)  # fmt: skip
_HASH: Final = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DUMMY: Final = "$2b$10$abcdefghijklmnopqrstuuuJAnOwMl.6eN9AOMYpgG93CqLZ8sOSO"
"""Compared where there is no such user, so that the time does not tell."""
_FILE: Final = "the file"
_KNOWN_PASSWORDS: Final = 100


class WebConfigError(Exception):
    """What is wrong with the file, one line."""


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file says, checked; an empty one lets everybody in without TLS."""

    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    client_auth: ssl.VerifyMode = ssl.CERT_NONE
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion] = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    users: Mapping[str, str] = field(default_factory=dict)
    """Name to bcrypt hash; empty: nobody is asked."""
    headers: Mapping[str, str] = field(default_factory=dict)
    interval: float = 0.0
    """Seconds between two requests, 0: no limit."""
    burst: int = 1

    def context(self) -> ssl.SSLContext | None:
        """For connections; None without TLS. Raises WebConfigError."""
        if self.cert is None or self.key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = self.versions
        context.verify_mode = self.client_auth
        try:
            with ExitStack() as held:
                names = {path: _held(path, held) for path in self.files()}
                context.load_cert_chain(names[self.cert], names[self.key], password=_no_password)
                if self.client_ca is not None:
                    context.load_verify_locations(names[self.client_ca])
        except (OSError, ssl.SSLError, WebConfigError) as error:
            text = error_text(error) if isinstance(error, OSError) else str(error)
            of = f"{path_text(self.cert)}, {path_text(self.key)}"
            raise WebConfigError(f"the certificate cannot be used ({of}): {printable(text, 200)}") from None
        return context

    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path is not None)


def _held(path: Path, held: ExitStack) -> str:
    """A name under which the very file is found that was looked at: a FIFO in its place would be waited for, and every
    scrape with it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    held.callback(os.close, descriptor)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise WebConfigError(f"{path_text(path)} is not a file")
    return f"/proc/self/fd/{descriptor}"


def _no_password() -> str:
    raise WebConfigError("the key has a password")


def load(path: Path) -> WebConfig:
    """Read and check the file. Raises WebConfigError."""
    import yaml

    try:
        data = yaml.safe_load(_read(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # what is there is not printed: it may be a link to another file
        raise WebConfigError("is not YAML" + (f": see line {mark.line + 1}" if mark is not None else "")) from None
    except RecursionError:
        raise WebConfigError("is nested too deeply") from None
    data = _table(data, {"tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"}, _FILE)
    found: dict[str, Any] = {}
    tls = _table(data.get("tls_server_config"), _TLS_KEYS, "tls_server_config")
    if tls:
        found |= _tls(tls, path.parent)
    http = _table(data.get("http_server_config"), {"http2", "headers"}, "http_server_config")
    headers = _table(http.get("headers"), _HEADERS, "headers")
    if any(not isinstance(value, str) or not value.isprintable() for value in headers.values()):
        raise WebConfigError("headers: each value is one line of text")
    found["headers"] = headers
    users = _table(data.get("basic_auth_users"), None, "basic_auth_users")
    for name, hashed in users.items():
        if not isinstance(name, str) or not isinstance(hashed, str) or _HASH.fullmatch(hashed) is None:
            raise WebConfigError(f"basic_auth_users: the password of {printable(str(name), 40)} is no bcrypt hash")
    found["users"] = users
    return WebConfig(**found, **_rate(_table(data.get("rate_limit"), {"interval", "burst"}, "rate_limit")))


def _tls(tls: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    for name in ("cert_file", "key_file"):
        if not isinstance(tls.get(name), str) or not tls[name]:
            raise WebConfigError(f"tls_server_config: {name} is missing")
    found: dict[str, Any] = {"cert": folder / tls["cert_file"], "key": folder / tls["key_file"]}
    auth = tls.get("client_auth_type", "NoClientCert")
    if auth not in _CLIENT_AUTH:
        raise WebConfigError(f"client_auth_type is one of {', '.join(_CLIENT_AUTH)}")
    found["client_auth"] = _CLIENT_AUTH[auth]
    ca = tls.get("client_ca_file")
    if (ca is not None and not isinstance(ca, str)) or bool(ca) is (_CLIENT_AUTH[auth] is ssl.CERT_NONE):
        raise WebConfigError("client_ca_file belongs to a client_auth_type that verifies certificates, and to it alone")
    found["client_ca"] = folder / ca if ca else None
    names = tls.get("min_version", "TLS12"), tls.get("max_version", "TLS13")
    if not all(name in _VERSIONS for name in names):
        raise WebConfigError("min_version and max_version are TLS12 or TLS13")
    found["versions"] = tuple(_VERSIONS[name] for name in names)
    return found


def _rate(rate: Mapping[str, Any]) -> dict[str, Any]:
    if not rate:
        return {}
    match = _DURATION.fullmatch(str(rate.get("interval", "")))
    burst = rate.get("burst", 1)
    if str(rate.get("interval")) == "0":
        return {}
    if match is None or isinstance(burst, bool) or not isinstance(burst, int) or not 1 <= burst <= 10_000:
        raise WebConfigError("rate_limit: interval is a time as 1s, burst a whole number from 1")
    return {"interval": float(match[1]) * _UNITS[match[2]], "burst": burst}


def _table(table: Any, known: frozenset[str] | set[str] | None, where: str) -> dict[Any, Any]:
    """An empty one where nothing is said; ``[]`` or ``false`` says something."""
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise WebConfigError(f"{where} is not a table")
    for number, key in enumerate(table, 1):
        if known is not None and key not in known:
            text = f"its key {number}" if where == _FILE else printable(str(key), 60)  # as of what is not YAML
            raise WebConfigError(f"{where}: {text} is not known; known: {', '.join(sorted(known))}")
    return table


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise WebConfigError("is not a file")
            judge_own_file(path, descriptor)
            raw = file.read(FILE_LIMIT + 1)
    except (OSError, PrivateFileError) as error:
        raise WebConfigError(error_text(error)) from None
    if len(raw) > FILE_LIMIT:
        raise WebConfigError(f"is larger than {FILE_LIMIT // 1024} KiB")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise WebConfigError("is not UTF-8") from None


class WebRules:
    """The file as it now is: read again when it, or a certificate, was changed. What is wrong then is told once, and
    what was right before stays in force."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.config = WebConfig() if path is None else load(path)
        self._files = self.config.files()
        """Of what was read last, be it right or not."""
        self._stamps = self._stamped()
        self.tls = self.config.context()
        """For connections that are made from now on; another one after each change."""
        self._passwords: dict[bytes, bool] = {}
        self._tokens, self._filled = float(self.config.burst), time.monotonic()

    def _stamped(self) -> tuple[object, ...]:
        stamps: list[object] = []
        for path in () if self.path is None else (self.path, *self._files):
            try:
                told = os.stat(path)
                stamps.append((told.st_mtime_ns, told.st_ino, told.st_size))
            except OSError:
                stamps.append(None)
        return tuple(stamps)

    def reload(self) -> str | None:
        """What is wrong with what was changed; None where nothing was, or all is right."""
        if self.path is None or (stamps := self._stamped()) == self._stamps:
            return None
        self._stamps = stamps
        try:
            config = load(self.path)
            self._files = config.files()
            self._stamps = (*stamps[:1], *self._stamped()[1:])
            if (config.cert is None) is not (self.tls is None):
                raise WebConfigError("TLS is turned on or off by a restart only")
            if self.config.users and not config.users:  # as in a file that is half written
                raise WebConfigError("to remove all passwords takes a restart")
            if config.client_auth < self.config.client_auth == ssl.CERT_REQUIRED:
                raise WebConfigError("to make client certificates optional takes a restart")
            self.tls = config.context()  # a new one: an authority that was taken out is believed no more
        except WebConfigError as error:
            return f"{path_text(self.path)}: {error}; what was read before stays in force"
        self.config, self._passwords = config, {}
        return None

    def allows(self, authorization: str) -> bool | None:
        """Whether the header names a user with the right password; None where :meth:`check` has to find out."""
        return True if not self.config.users else self._passwords.get(self._digest(authorization))

    def check(self, authorization: str) -> bool:
        """As :meth:`allows`; takes a tenth of a second of a processor, by intent."""
        import bcrypt

        name, password = _credentials(authorization)
        hashed = self.config.users.get(name)
        right = bcrypt.checkpw(password[:72], (hashed or _DUMMY).encode()) and hashed is not None
        if len(self._passwords) >= _KNOWN_PASSWORDS:
            self._passwords = {digest: told for digest, told in self._passwords.items() if told}
        if right or len(self._passwords) < _KNOWN_PASSWORDS:
            self._passwords[self._digest(authorization)] = right
        return right

    def _digest(self, authorization: str) -> bytes:
        return hmac.digest(_SECRET, authorization.encode(), hashlib.sha256)

    def in_time(self) -> bool:
        """Whether a request may be answered now; a bucket of tokens, as the toolkit's."""
        if not self.config.interval:
            return True
        now = time.monotonic()
        grown = (now - self._filled) / self.config.interval
        self._tokens, self._filled = min(float(self.config.burst), self._tokens + grown), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


_SECRET: Final = os.urandom(32)


def _credentials(authorization: str) -> tuple[str, bytes]:
    """Name and password; empty where the header is none of basic authentication."""
    scheme, _, coded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", b""
    try:
        name, _, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return "", b""
    return name.decode("utf-8", "replace"), password.replace(b"\0", b"")
