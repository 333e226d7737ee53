"""What each kind of problem means and what to do about it, where nothing more is known than its code.

mpstui says it with names and numbers where it sees the node; ``mpstui fleet`` has the code alone from Prometheus. The
words that both say are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mpstui.core.cells import KEEP_OLD
from mpstui.core.condition import meaning_of
from mpstui.core.model import Health, Problem, Severity
from mpstui.core.text import printable

MULTI_USER: Final = "multi-user mode (drivers from 555 on)"
"""What serves the clients of all users at once, by one server; facts 46: 550 has no such mode."""


class Words(NamedTuple):
    """Complete sentences."""

    text: str
    remedy: str


def _daemon(health: Health, remedy: str) -> Words:
    return Words(meaning_of(health), remedy)


KINDS: Final[Mapping[str, Mapping[Severity, Words]]] = {
    "daemon_held": {
        "error": _daemon(
            "held", "Close that session; mpstui on the node names the process that keeps it, and its terminal."
        )
    },
    "daemon_blocked": {"error": _daemon("blocked", "See on the node what it waits for: mpstui unblock frees it.")},
    "daemon_quitting": {
        "warning": Words(
            "The daemon is told to quit. It ends when its servers have ended. Until then it takes no command, and "
            "every new CUDA client waits.",
            "Let its clients end; then start a daemon there again: mpstui daemon start.",
        )
    },
    "daemon_stale": {"warning": _daemon("stale", "Start a daemon there again: mpstui daemon start.")},
    "daemon_absent": {"warning": _daemon("absent", "Start one: mpstui daemon start.")},
    "daemon_read_only": {
        "warning": Words(
            "The daemon runs in a mode that mpstui shows and cannot change.",
            "Use the daemon's own commands, such as nvidia-cuda-mps-control server list and … client list.",
        )
    },
    "daemon_unread": {
        "warning": Words(
            "The daemon cannot be asked, so its servers and clients are not known.",
            "Put nvidia-cuda-mps-control on PATH or its path in MPSTUI_CONTROL_BINARY.",
        )
    },
    "polling": {
        "info": Words(
            "mpstui asks the daemon at intervals, because it does not read the daemon's logs.",
            "Let this user read control.log and server.log, or name their directory with --log-dir.",
        )
    },
    "namespace_unlimited": {
        "warning": Words(
            "A namespace has no limits. The server's limits apply to its default namespace only, so a client of this "
            "namespace can use the whole GPU.",
            "Set its own: mpstui namespace set NAME --server SERVER --active-thread-percentage N.",
        )
    },
    "not_understood": {
        "warning": Words(
            "mpstui does not understand a line of the daemon's answer, and leaves it out.",
            "See what nvidia-cuda-mps-control itself prints.",
        )
    },
    "lost": {
        "warning": Words(
            "Clients lost the server; each CUDA call of theirs gives error 806.",
            "Let their owners end them and start them again.",
        )
    },
    "daemon_lies": {
        "warning": Words(
            "A user's daemon names processes of other users as its clients or server, which is not possible.",
            "Do not trust what it says. mpstui ends no process of another user on its word.",
        )
    },
    "daemon_usurped": {
        "error": Words(
            "The sockets of root's daemon, or of your own, belong to another user, or one of them is missing.",
            "End its process with mpstui daemon stop --force, and start it again in a directory that only its user may "
            "change.",
        )
    },
    "daemon_led_elsewhere": {
        "warning": Words(
            "The path of the daemon's directory now leads to another directory. mpstui shows what is there now.",
            "Give the directory itself, not a link to it: --pipe-dir DIR. This warning clears when the path leads to "
            "the old directory again, or when mpstui restarts.",
        )
    },
    "daemon_environment": {
        "warning": Words(
            "A variable in the daemon's environment sets no limit. The default holds.",
            "Correct the variable where the daemon is started, or set the limit with mpstui set.",
        ),
        "info": Words(
            "The daemon's environment sets a memory limit. It is not known whether clients get it.",
            "Set the limit with mpstui set: that one can be read back.",
        ),
    },
    "server_start": {
        "error": Words(
            "No server starts: it ends before it is ready.",
            "Likely causes: no GPU or no driver where the daemon runs (try nvidia-smi there), nvidia-cuda-mps-server "
            "is missing, the driver's libraries and its kernel module differ, or a container without /dev/shm or the "
            "GPUs.",
        )
    },
    "server_ending": {
        "info": Words(
            "A server was told to end, as its log says, and waits for its clients. It still takes new ones, and waits "
            "for them too.",
            "It ends when its last client has ended: wait, or ask the owners of its clients.",
        )
    },
    "pending": {
        "warning": Words(
            "Clients wait for a server of another user to end.",
            f"They get a server when the present server has no clients left, or the daemon runs in {MULTI_USER}.",
        ),
        "info": Words(
            "Clients wait for a server.", "They get a server when the server that is being started is ready."
        ),
    },
    "outside": {
        "warning": Words(
            "A process computes without MPS.",
            "Start it again with the daemon's CUDA_MPS_PIPE_DIRECTORY; it takes turns with the clients until then.",
        )
    },
    "fault": {
        "error": Words(
            "A fatal GPU fault; new clients are refused until the last client hit has ended.",
            "End the clients hit by it: their work is lost already.",
        ),
        "warning": Words(
            "server.log reports a fatal GPU fault. The daemon itself has not confirmed it.",
            "End no process until the daemon itself reports FAULT; mpstui asks it.",
        ),
    },
    "bridge": {
        "info": Words(
            "A client computes on several devices, so that one fault can end the GPU work on all of them.",
            "Keep it to one device, or keep other clients off its devices.",
        )
    },
    "terminated": {
        "warning": Words(
            "A client was terminated and its process lives.",
            "End its process. Never terminate it again: that blocks the daemon.",
        )
    },
    "outdated": {
        "info": Words(
            f"Clients {KEEP_OLD}.",
            "Restart the clients that are to get the new limits.",
        )
    },
    "device_full": {
        "error": Words(
            "A GPU has no context left; the next client gets error 46, or 808 in CUDA's driver API.",
            "Start further clients on another device, or let some end.",
        )
    },
    "device_nearly_full": {
        "warning": Words("A GPU has few contexts left.", "Start further clients on another device, or let some end.")
    },
    "shared_device": {
        "warning": Words(
            "Several daemons serve one GPU; their clients do not run at the same time.",
            "Give each daemon devices of its own with CUDA_VISIBLE_DEVICES, by UUID.",
        )
    },
    "nvml": {
        "warning": Words(
            "NVML does not answer, so the GPUs are not known.",
            "Install the NVIDIA driver's libnvidia-ml, or run mpstui where the GPUs are visible.",
        )
    },
    "idle": {
        "info": Words(
            "A client holds GPU memory and has launched no kernel for a long time.",
            "Ask its owner whether it is still needed.",
        )
    },
}
"""By code and severity."""


def problem(severity: Severity, code: str, subject: str, text: str = "", remedy: str | None = None) -> Problem:
    """With the words of the table where it has none of its own. A code has its row there."""
    words = KINDS[code][severity]
    return Problem(severity, code, subject, text or words.text, words.remedy if remedy is None else remedy)


def words_of(severity: str, code: str) -> Words:
    """Of a problem that another program tells of, which may be newer, older or lie."""
    kinds = KINDS.get(code)
    if kinds is None:
        what = printable(code, 60) or "without a code"
        return Words(
            f"A problem “{what}” that this version of mpstui does not know.", "Open the node: it says what it is."
        )
    if severity == "info" and severity not in kinds:
        return Words(f"By another user's daemon: {next(iter(kinds.values())).text}", "Leave it to its owner.")
    return next((words for each, words in kinds.items() if each == severity), next(iter(kinds.values())))
