"""How long a control binary is waited for; apart, as who keeps a daemon needs nothing else of a channel to one."""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """How long the control binary is waited for: ``seconds``, or MPSTUI_CONTROL_DEADLINE where that is more.

    On a machine with more work than processors a binary that is only slow looks like a daemon that does not answer.
    """
    try:
        wish = float(os.environ.get("MPSTUI_CONTROL_DEADLINE", ""))
    except ValueError:
        return seconds
    return min(max(seconds, wish), 3600.0) if wish == wish else seconds
