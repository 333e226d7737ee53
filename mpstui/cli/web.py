"""``web``: the screen in a browser."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import ipaddress
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from mpstui.cli.arguments import between, whole
from mpstui.cli.output import complain, unheard
from mpstui.config import PrivateFileError, private_file, read_private, state_folder
from mpstui.core.text import error_text, path_text, printable, typed_count
from mpstui.operations.types import ExitStatus

LISTEN: Final = "127.0.0.1:8037"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``web``."""
    parser.add_argument("--listen", default=LISTEN, metavar="ADDRESS", help=f"HOST:PORT (default {LISTEN})")
    parser.add_argument(
        "--public-url", default="", metavar="URL",
        help="the address that browsers have for it, behind a reverse proxy or on an address that others reach",
    )  # fmt: skip
    parser.add_argument("--changes", action="store_true", help="allow changes: whoever has the address acts as you")
    parser.add_argument(
        "--sessions",
        type=whole(1, 50),
        default=4,
        metavar="N",
        help="browser tabs at the same time, 1 to 50 (default 4)",
    )
    parser.add_argument(
        "--idle", type=between(0.05, 1440, "minutes"), default=30.0, metavar="MIN",
        help="minutes without a key, a click or a move of the mouse after which a session is closed (default 30)",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", metavar="FILE",
        help="a file that only you can read, with 20 to 200 letters, digits, - and _; otherwise a new token each time",
    )  # fmt: skip
    parser.add_argument(
        "--theme", default=argparse.SUPPRESS, metavar="NAME", help="a theme of the package or of the config folder"
    )  # where it is not given here, the one that stands before the command holds


def web(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Serve until it is told to end; the exit status."""
    try:
        from mpstui.web import TOKEN, Rules, WebServer, address, signalled
    except ImportError as error:
        from mpstui.extras import how_to_install

        return complain(f"the browser needs the package {error.name}: {how_to_install('web')}", ExitStatus.USAGE)
    public = options.public_url.rstrip("/")
    if public and not _is_url(public):
        said = f"{printable(public, 80)} is no address of a page; give https://NAME or http://NAME:PORT"
        return complain(said, ExitStatus.USAGE)
    token = secrets.token_urlsafe(32)
    if options.token_file is not None:
        try:
            token = read_private(Path(options.token_file).absolute()).strip()
        except PrivateFileError as error:
            return complain(f"{path_text(options.token_file)}: {error}", ExitStatus.USAGE)
        if not TOKEN.fullmatch(token):
            said = "a token is one line of 20 to 200 letters, digits, - and _"
            return complain(f"{path_text(options.token_file)}: {said}", ExitStatus.USAGE)
    try:
        listening = _listen(options.listen, anywhere=bool(public))
    except (ValueError, OSError) as error:
        why = unheard(error) if isinstance(error, OSError) else str(error)
        return complain(f"--listen {printable(options.listen, 80)}: {why}", ExitStatus.USAGE)
    with listening:
        port = listening.getsockname()[1]
        rules = Rules(token, port, public, options.sessions, 60 * options.idle)
        server = WebServer(_words(options, pipe_dirs), rules, f"mpstui {socket.gethostname()}")
        if public.startswith("http:") and not _is_loopback(listening.getsockname()[0]):
            complain("without TLS everybody on the network path can read the screen and the token", 0)
        with _told(address(rules, listening), port) as tell:
            number = asyncio.run(server.serve_on([listening], tell, signalled))
    return 0 if number == signal.SIGINT else 128 + number


class _told:
    """Says where to look. What is not a terminal may be a log: then the address is in a file of the user's own."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._path: Path | None = None if sys.stdout.isatty() else state_folder() / f"web-{_host()}-{port}.url"
        self._lock: int | None = None
        """Held on the file as long as the server is there, also by one that is killed."""

    def __enter__(self) -> _told:
        return self

    def __call__(self) -> None:
        if self._path is None:
            print(f"{self._address}\nCtrl-C ends it, and its sessions.", flush=True)
            return
        try:
            for _ in range(100):
                private_file(self._path, self._address + "\n")
                if (lock := _locked(self._path)) is not None:
                    self._lock = lock
                    break
            else:
                raise PrivateFileError(f"{path_text(self._path)} is another program's")
            _sweep(self._path)
        except PrivateFileError as error:
            complain(f"the address could not be written: {error}", 0)
            self._path = None
            os.kill(os.getpid(), signal.SIGTERM)
            return
        print(f"the address with its token is in {path_text(self._path)}", flush=True)

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)


def _host() -> str:
    """For a file's name: machines may share a home."""
    return quote(socket.gethostname(), safe="")


def _locked(path: Path) -> int | None:
    """A descriptor with the lock on it; None where another one has just taken the file for left behind."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrivateFileError(f"{path_text(path)}: {error_text(error)}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    except OSError:
        pass  # somebody looks at it at this moment, or it has just been removed
    os.close(descriptor)
    return None


def _sweep(own: Path) -> None:
    """Removes what a server of this machine that was killed has left: nobody holds its lock."""
    for path in own.parent.glob("web-*.url"):
        if path == own or not re.fullmatch(rf"web-{re.escape(_host())}-[0-9]+\.url", path.name):
            continue
        with suppress(PrivateFileError, OSError):
            if (descriptor := _locked(path)) is not None:
                path.unlink()
                os.close(descriptor)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    good = parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isascii() and text.isprintable()
    return good and not (parts.query or parts.fragment or parts.username or set(text) & set("\"'<>\\ "))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _listen(text: str, *, anywhere: bool) -> socket.socket:
    """Raises ValueError and OSError."""
    host, colon, port = text.rpartition(":")
    number = typed_count(port)
    if not colon or not host or number is None or number > 65535:
        raise ValueError(f"give HOST:PORT, as {LISTEN}")
    found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), number, type=socket.SOCK_STREAM)
    family, _, _, _, where = found[0]
    if not anywhere and not _is_loopback(str(where[0])):
        raise ValueError(
            "other hosts can reach this address: give the URL that browsers use with --public-url URL, best with TLS"
        )
    return socket.create_server(where[:2], family=family)


def _words(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> list[str]:
    """What each session runs."""
    words = [sys.executable, "-m", "mpstui"]
    for option, paths in (("--pipe-dir", pipe_dirs), ("--log-dir", getattr(options, "log_dir", None) or ())):
        for path in paths:
            words += [option, os.path.abspath(path)]
    words += [] if options.changes else ["--read-only"]
    words += ["--theme", options.theme] if options.theme else []
    return words
