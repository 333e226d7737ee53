"""The same surroundings for every test, whatever the machine's; and keys that are waited for by what is left to do."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

gc.disable()  # what is imported and collected until the first test runs stays for good

_OTHERS = ("CUDA_MPS_", "MPSTUI_", "TEXTUAL_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
_OURS = ("MPSTUI_BROWSER", "MPSTUI_CONTRACT", "MPSTUI_PICTURES", "MPSTUI_REAL_", "MPSTUI_ALL_KEYS", "TEXTUAL_SNAPSHOT_")
for name in [name for name in os.environ if name.startswith(_OTHERS) and not name.startswith(_OURS)]:
    del os.environ[name]
if os.environ.get("MPSTUI_CONTRACT") != "real":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background jobs ignore it, and so would our children
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("MPSTUI_CONTROL_DEADLINE", "60")  # a binary that is only slow is not blocked
os.environ["TZ"] = "UTC"  # the screen shows local times
time.tzset()
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "pty")]

import textual.app  # noqa: E402 - reads the environment
import textual.pilot  # noqa: E402
from settled import settled  # noqa: E402

from mpstui.ui import typeahead  # noqa: E402

textual.app.wait_for_idle = settled
textual.pilot.wait_for_idle = settled
typeahead.UNSEEN = 0.0  # most tests show no notifications: there a refusal is never painted


def pytest_collection_finish() -> None:
    """From here on there is garbage; thousands of tests are not looked through for it again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the settings of whoever runs it, or writes into their home."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        yield


@pytest.fixture
def usual_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a daemon that is blocked: it is not waited for as long as one that the machine may have made slow."""
    monkeypatch.delenv("MPSTUI_CONTROL_DEADLINE", raising=False)
