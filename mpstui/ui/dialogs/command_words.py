"""Commands typed by name, ``terminate 4711``, ``set threads 25 server``: read by the table of operations, with what may
come next at each word. Pure: nothing is carried out here, each opens the dialog that asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.cells import client_line
from mpstui.core.model import Client, Daemon, ProcessKey, Server, Snapshot
from mpstui.core.text import is_own_number, owner, path_text
from mpstui.operations.operation import Operation

_MOST: Final = 30
"""Completions of one word."""


class Typed(NamedTuple):
    """A command as far as it is typed, or completed by one word."""

    text: str
    help: str
    operation: Operation | None = None
    """What it opens; None where more has to be typed."""
    clients: tuple[ProcessKey, ...] = ()
    server: ProcessKey | None = None
    device: str | None = None
    value: str = ""
    pipe_dir: Path | None = None
    """The daemon that is to be shown, for ``daemon``."""
    view: tuple[str, str] | None = None
    """What is to be shown, by name and word (:func:`views`)."""
    shown: str = ""
    """What stands in the list, where the whole of it, a file's name, stands above it as it is typed."""


def names(operation: Operation) -> tuple[str, ...]:
    """What it may be called: the words of its command, and for a limit its short name."""
    if operation.verb is None:
        return (operation.title.lower(),)
    words = " ".join((*operation.verb.words, *([operation.verb.flag.lstrip("-")] if operation.verb.flag else [])))
    short = f"set {operation.title.lower()}" if operation.verb.words[0] == "set" else ""
    return tuple(dict.fromkeys(name for name in (short, words) if name))


def commands(
    text: str, operations: Sequence[Operation], snapshot: Snapshot | None, daemon: Daemon | None
) -> Iterator[Typed]:
    """What the text may mean, the exact meaning first."""
    typed = text.lstrip()
    text = typed.lower()
    yield from _daemons(text, snapshot)
    begun = [n for operation in operations for n in names(operation) if text == n or text.startswith(n + " ")]
    longest = max(begun, key=len, default="")  # "terminate kill 4711" is no terminate
    for operation in operations:
        name = next((n for n in names(operation) if n in begun), None)
        if name is not None and name == longest:
            yield from _arguments(name, typed[len(name) :], operation, daemon)
        elif found := next((n for n in names(operation) if n.startswith(text)), None):
            if not operation.arguments:
                yield Typed(found, operation.help, operation)
            else:  # the space is what is typed on behind
                yield Typed(f"{found} ", operation.help, shown=f"{found} …")


VIEWS: Final = {
    "group": "put the clients in groups: group user",
    "sort": "sort the clients: sort mem; again, reverse the order",
    "user": "show only one user's clients: user alice",
    "filter": "show only the clients that match: filter gpu:0 !user:bob",
    "find": "go to the next client that matches: find train",
    "time": "show the past at this time: time 02:10, time 10m for 10 minutes ago, in a recording before its end",
    "reset": "show the usual view again: reset view",
    "save": "write what is kept of the past, the last hour at most, into a new file, for mpstui replay",
}
"""The commands that change what is shown, and nothing on the node."""
_NAMED: Final = 6
"""Words that are told where another one was typed."""


def views(text: str, words: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[Typed]:
    """What of these the text may mean. ``words``: what may follow each, and what it is; none: any text."""
    name, space, rest = text.lstrip().partition(" ")
    rest = rest.strip()
    for each, choices in words.items():
        if not space or name.lower() != each:
            if name and not space and each.startswith(name.lower()):
                yield Typed(f"{each} ", VIEWS[each])
            continue
        if not choices:
            yield Typed(f"{each} {rest}", VIEWS[each], view=(each, rest) if rest else None, shown=each if rest else "")
        fitting = [pair for pair in choices if pair[0].lower().startswith(rest.lower())]
        for word, about in sorted(fitting, key=lambda pair: pair[0].lower() != rest.lower()):
            yield Typed(f"{each} {word}", about, view=(each, word))
        if choices and not fitting:
            yield Typed(f"{each} {rest}", f"“{rest}” is not known here; {_there_are(word for word, _ in choices)}")


def _daemons(text: str, snapshot: Snapshot | None) -> Iterator[Typed]:
    """``daemon gpu1``: the daemon whose directory has that in its name is shown."""
    if snapshot is None or not (text.startswith("daemon ") or (text and "daemon".startswith(text))):
        return
    wanted = text.partition(" ")[2].strip()
    places = {path_text(each.pipe_dir): each.pipe_dir for each in snapshot.daemons}
    fitting = [place for place in places if wanted in place.lower()]
    for place in fitting:
        yield Typed(f"daemon {place}", "show this daemon", pipe_dir=places[place])
    if wanted and not fitting:
        yield Typed(f"daemon {wanted}", f"no daemon has “{wanted}” in its directory; {_there_are(places)}")


def _there_are(words: Iterable[str]) -> str:
    """What may be typed instead."""
    known = list(words)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"there are: {', '.join(known[:_NAMED])}{more}" if known else "there is none"


def _arguments(name: str, rest: str, operation: Operation, daemon: Daemon | None) -> Iterator[Typed]:
    kinds: set[str] = {argument.kind for argument in operation.arguments}
    words = rest.split()
    open_word = "" if rest.endswith(" ") or not words else words[-1]
    before = words[:-1] if open_word else words
    servers = {str(server.pid): server for server in (daemon.servers if daemon else ())}
    clients = {str(client.pid): client for client in (daemon.clients() if daemon else ())}
    made = Typed(" ".join([name, *words]), operation.help, operation)
    wrong = ""
    for written in words:
        word = written.lower()
        if "clients" in kinds and word in clients:
            made = made._replace(clients=(*made.clients, clients[word].key))
        elif word in servers and kinds & {"scope", "server"}:
            made = made._replace(server=servers[word].key)
        elif word == "server" and len(servers) == 1 and kinds & {"scope", "server"}:
            made = made._replace(server=next(iter(servers.values())).key)
        elif word in {"server", "default"} and "scope" in kinds:
            continue
        elif word.startswith("gpu") and "device" in kinds and daemon and word[3:] in daemon.ordinals:
            made = made._replace(device=daemon.ordinals[word[3:]])
        elif word.startswith("gpu") and "device" in kinds and daemon and daemon.own_numbers and is_own_number(word[3:]):
            made = made._replace(device=word[3:])
        elif kinds & {"value", "choice"} and not made.value:
            made = made._replace(value=written)
        else:
            wrong = wrong or written
    made = made._replace(clients=tuple(dict.fromkeys(made.clients)))
    told = made.clients or made.value or made.server or operation.finds_clients or not kinds - {"owner", "force"}
    if told and not wrong:
        yield made._replace(help=_says(made, daemon))
    choices = [] if made.value else [pair for argument in operation.arguments for pair in argument.choices]
    completed = False
    after = [*choices, *_next(kinds, made, servers, clients, daemon)]
    for word, about in after:
        if word.startswith(open_word.lower()) and word != open_word and word not in before:
            completed = True
            yield Typed(" ".join([name, *before, word]) + " ", about)
    if not ((wrong == open_word and completed) or (not wrong and (told or completed))):
        yield _unread(name, words, wrong, operation, [word for word, _ in after])


def _unread(name: str, words: Sequence[str], wrong: str, operation: Operation, after: Sequence[str]) -> Typed:
    """Of a command that is not whole: which word is none of it, and which would be, or what has to come."""
    if wrong:
        what = "no client or server of this daemon" if wrong.isdigit() else "not understood here"
        more = " …" if len(after) > _NAMED else ""
        known = f". Understood here: {', '.join(after[:_NAMED])}{more}" if after else ": nothing more may follow"
        return Typed(" ".join([name, *words]), f"“{wrong}” is {what}{known}")
    needed = [f"{argument.label.lower()}, {argument.hint or argument.help}" for argument in operation.arguments]
    return Typed(f"{name} ", f"{operation.help}. Type more: {'; '.join(needed)}")


def _says(made: Typed, daemon: Daemon | None) -> str:
    """Whom it is for, as the dialog will say it again."""
    found = [client_line(c) for key in made.clients if daemon and (c := daemon.find_client(key)) is not None]
    where = f"server {made.server.pid}" if made.server else ""
    ordinals = daemon.ordinals if daemon else {}
    device = next((f"GPU {n}" for n, uuid in ordinals.items() if uuid == made.device), f"GPU {made.device}")
    parts = [", ".join(found), made.value, device if made.device else "", where, "asks before anything is done"]
    return " · ".join(part for part in parts if part)


def _next(
    kinds: set[str], made: Typed, servers: dict[str, Server], clients: dict[str, Client], daemon: Daemon | None
) -> Iterator[tuple[str, str]]:
    if "clients" in kinds:
        yield from ((pid, client_line(client)) for pid, client in list(clients.items())[:_MOST])
    if kinds & {"scope", "server"} and made.server is None:
        yield from ((pid, f"server of {owner(server.user, server.uid)}") for pid, server in servers.items())
        if len(servers) == 1:
            yield "server", "the only one"
    if "scope" in kinds and made.server is None:
        yield "default", "for servers that start from now on"
    if "device" in kinds and made.device is None and daemon is not None:
        yield from ((f"gpu{ordinal}", uuid) for ordinal, uuid in daemon.ordinals.items())
