"""How long a daemon is waited for that is to look as if it did not answer."""

from __future__ import annotations

import os


def usual() -> str:
    """For MPSTUI_CONTROL_DEADLINE: not as long as one that the machine may have made slow; but where the machine has so
    much more to do than it can, the other answers that a test waits for take longer, too."""
    waiting = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 1.0)
    return str(min(60.0, 5.0 * waiting))
