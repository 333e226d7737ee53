"""The key bar of the panel: the keys as the user has them, dimmed where they do nothing now."""

from __future__ import annotations

from collections.abc import Mapping

from mpstui.ui.bars import KeyHint
from mpstui.ui.keys import shown_key
from mpstui.ui.load.session import LoadSession, Member


def hints(
    keymap: Mapping[str, str],
    session: LoadSession,
    row: Member | None,
    *,
    in_fields: bool,
    ready: bool,
    answers: bool,
) -> list[KeyHint]:
    """``row``: the client under the cursor. ``ready``: Enter would start something. ``answers``: the daemon does."""

    def key(name: str, default: str) -> str:
        return shown_key(keymap, f"load.{name}", default)

    there = row is not None and not row.report.over
    movable = there and row is not None and row.spec.mps
    found = (
        [KeyHint("Enter", "Start", "begin", 9, ready), KeyHint("←→", "Change", "none", 8)]
        if in_fields
        else [KeyHint("←→", "Share", "none", 9, movable), KeyHint("⇧←→", "More", "none", 4, movable)]
    )
    found += [
        KeyHint(key("restart", "r"), "Restart", "restart", 6, row is not None and not row.stopped),
        KeyHint(key("stop", "x"), "Stop", "stop_one", 6, there),
        KeyHint(key("stop_all", "X"), "Stop all", "stop_all", 7, bool(session.live)),
    ]
    if any(member.report.kernel == "illegal" for member in session.live):
        found.append(KeyHint(key("fault", "f"), "Fault", "fault", 6))
    return [
        *found,
        KeyHint(key("limit", "l"), "Server's threads", "limit", 3, answers),
        KeyHint(key("other", "Tab"), "Clients" if in_fields else "Fields", "other", 7),
        KeyHint(key("back", "Esc"), "Back", "back", 7),
        KeyHint(shown_key(keymap, "help", "?"), "Help", "app.show_help", 5),
        KeyHint(shown_key(keymap, "quit", "q"), "Quit", "app.quit_app", 5),
    ]
