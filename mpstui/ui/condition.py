"""What stands in place of a daemon's panels while it cannot be asked: what, by whom, since when, and the remedy."""

from __future__ import annotations

import time
from typing import Final, cast

from mpstui.core.cells import health_word
from mpstui.core.condition import by_whom, still_works
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import format_age, path_text, printable
from mpstui.ui.box import box, parts
from mpstui.ui.contract import Host
from mpstui.ui.lines import Line, LineWidget, fit
from mpstui.ui.trouble.no_answer import recovery

_GIVE_WAY: Final = ("", "where", "remedy", "still works", "before", "since")
"""Fields that go first where there is no room for all: the key that helps stays, and the remedy where there is none."""


class ConditionPanel(LineWidget):
    """Takes the place of limits, servers and clients, and clears by itself when the daemon answers again."""

    def __init__(self, *, read_only: bool) -> None:
        super().__init__(id="condition")
        self._read_only = read_only
        self._snapshot: Snapshot | None = None
        self._daemon: Daemon | None = None

    def show(self, snapshot: Snapshot | None, daemon: Daemon | None) -> None:
        self._snapshot, self._daemon = snapshot, daemon
        self.repaint()

    def lines(self, width: int, height: int) -> list[Line]:
        title, style, fields = self._content()
        inner = min(width - 4, 100)
        if inner < 20:
            return []
        room = max(0, height - 2)
        if len(_body(fields, inner, airy=False)) > room:
            fields = self._content(brief=True)[2]
        for spare in _GIVE_WAY:
            if len(_body(fields, inner, airy=False)) <= room:
                break
            if spare != "remedy" or any(label == "key" for label, _ in fields):
                fields = [field for field in fields if field[0] != spare]
        body = _body(fields, inner, airy=height > 3 * len(fields) + 4)[:room]
        if len(body) < room:
            body.insert(0, ())
        margin = " " * ((width - inner) // 2)
        above = max(0, (height - len(body) - 3) // 3)
        out: list[Line] = [()] * above
        out += [((margin, "text"), *line) for line in box(((title, style),), (), body, inner, style)]
        return out

    def _content(self, *, brief: bool = False) -> tuple[str, str, list[tuple[str, str]]]:
        snapshot, daemon = self._snapshot, self._daemon
        if snapshot is None or (daemon is None and not snapshot.looked):
            if snapshot is not None and snapshot.past is not None:
                return "Not read yet", "dim", [("", "At that time nothing of the node had been read.")]
            where = "Looking… in the environment of running daemons, and in the well-known places."
            return "Looking for daemons", "dim", [("", where)]
        if daemon is None:
            fields = [
                ("what", "No MPS control daemon runs here, and no pipe directory was found in the well-known places.")
            ]
            fields.append(
                (
                    "remedy",
                    "Start one, on the screen Daemon or with mpstui daemon start; or name its directory: --pipe-dir.",
                )
            )
            works = still_works(snapshot, None)
            fields.append(("still works" if works else "", f"{works} A daemon that starts appears by itself.".strip()))
            return "No daemon", "dim", fields
        found = daemon.condition
        word, style = health_word(daemon)
        what = printable(found.detail) if found.detail else found.meaning
        then = snapshot.past is not None  # nothing is live, and no key changes it
        ways = recovery(snapshot, daemon, cast("Host", self.app).keymap, read_only=self._read_only or then, brief=brief)
        fields = [("where", path_text(daemon.pipe_dir)), ("what", what)]
        if found.detail and found.meaning:
            fields.append(("", found.meaning))
        fields += [field for field in ways if field[0] == "key"]
        holder = found.holder
        told = holder is not None and holder.certain and str(holder.pid) in what
        if not told and (who := by_whom(daemon)) is not None:
            fields.append(("by whom", who))
        if found.since is not None:
            clock = time.strftime("%H:%M:%S", time.localtime(found.since))
            fields.append(("since", f"{clock}, {format_age(snapshot.time - found.since)} ago"))
        fields.append(("remedy", printable(found.remedy or "")))
        fields += [field for field in ways if field[0] != "key"]
        if not then:
            works = still_works(snapshot, daemon)
            fields.append(("still works" if works else "", f"{works} This message clears by itself.".strip()))
        return f"{word} · {found.title}", style, fields


def _body(fields: list[tuple[str, str]], inner: int, *, airy: bool) -> list[Line]:
    """Labels and folded texts; ``airy``: with a line between them."""
    body: list[Line] = []
    for label, text in fields:
        style = "key" if label == "key" else "text"
        for number, part in enumerate(parts(text, inner - 20) or [""]):
            body.append(((fit(f"  {label}" if number == 0 else "", 16), "label"), (part, style)))
        if airy:
            body.append(())
    return body
