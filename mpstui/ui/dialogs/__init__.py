"""The dialogs over the screen: forms, confirmations, details, help and the command palette."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpstui.core.model import ProcessKey, Snapshot
from mpstui.operations.operation import Operation
from mpstui.operations.types import Danger, Request
from mpstui.ui.contract import Runner
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.confirm import HarmConfirm
from mpstui.ui.dialogs.details import DetailsScreen
from mpstui.ui.dialogs.form import ChangeForm
from mpstui.ui.dialogs.help import HelpScreen
from mpstui.ui.dialogs.progress import ActionDialog

__all__ = ["ActionDialog", "ChangeForm", "DetailsScreen", "Dialog", "HarmConfirm", "HelpScreen", "open_action"]


def open_action(
    runner: Runner,
    action: Operation,
    pipe_dir: Path,
    snapshot: Snapshot,
    *,
    clients: Sequence[ProcessKey] = (),
    server: ProcessKey | None = None,
    device: str | None = None,
    asked: Request | None = None,
    value: str = "",
) -> ActionDialog:
    """The dialog of an action: a form for a change, a question for one that ends somebody's work.

    ``clients`` are those to end; ``server``, ``device`` (a UUID) and ``value`` are what a form begins with.
    ``asked``: what is asked for, where neither clients nor a server say it.
    """
    if action.danger is Danger.HARM:
        return HarmConfirm(runner, action, pipe_dir, snapshot, clients, server, asked)
    return ChangeForm(runner, action, pipe_dir, snapshot, server=server, device=device, value=value, asked=asked)
