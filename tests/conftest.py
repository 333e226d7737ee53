"""The same surroundings for every test, whatever the machine's; and keys that are waited for by what is left to do."""

from __future__ import annotations

import gc
import getpass
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

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
if os.path.realpath(shutil.which("python3") or "") != os.path.realpath(sys.executable):
    # The stand-in of the control binary is a script for python3, and started thousands of times: a manager's shim in
    # front of it costs four times what the script does.
    os.environ["PATH"] = os.path.dirname(os.path.realpath(sys.executable)) + os.pathsep + os.environ["PATH"]
for name in ("TMPDIR", "TEMP", "TMP"):  # the path of a socket has 107 bytes
    os.environ.pop(name, None)
tempfile.tempdir = None
os.umask(0o022)  # other users are to come to what tests make for them
os.environ["TZ"] = "UTC"  # the screen shows local times
time.tzset()
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "pty")]

import stand_in  # noqa: E402

stand_in.use()

import textual.app  # noqa: E402 - reads the environment
import textual.pilot  # noqa: E402
from deadline import usual  # noqa: E402
from settled import settled  # noqa: E402
from textual.css.stylesheet import Stylesheet  # noqa: E402

from mpstui.ui import typeahead  # noqa: E402

textual.app.wait_for_idle = settled
textual.pilot.wait_for_idle = settled
typeahead.UNSEEN = 0.0  # most tests show no notifications: there a refusal is never painted
typeahead.PATIENCE = 120.0  # a screen that a busy machine opens late has not failed to open


class _SharedRules(Stylesheet):
    """Textual parses each widget's style sheet anew for each app, and once more for its theme: a seventh of what the
    start of an app takes. Nothing changes a rule once it is parsed, so that those of one sheet with one theme's
    variables are the same for all apps of a process."""

    _shared: ClassVar[dict[tuple[tuple[str, str], ...], dict[Any, Any]]] = {}

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._share()

    def set_variables(self, variables: dict[str, str]) -> None:
        self._parse_cache = {}  # what it empties is its own
        super().set_variables(variables)
        self._share()

    def _share(self) -> None:
        self._parse_cache = self._shared.setdefault(tuple(self._variables.items()), {})


textual.app.Stylesheet = _SharedRules
textual.css.stylesheet.Stylesheet = _SharedRules  # a style sheet makes others, by this name


_LONG = (
    "test_slurm.py::",
    "test_v3.py::test_servers_and_namespaces_are_made_set_and_deleted",
    "test_cli.py::test_stop_tells_the_safe_ways_from_the_others[others]",
    "test_operations.py::test_a_way_out_names_whom_it_ends_and_asks[unblock-blocked]",
    "test_pty_beside.py::",
    "test_decoys.py::",
    "test_recording.py::test_the_part_without_a_gpu_runs_on_any_binary",
    "test_stops.py::",
    "test_schema.py::test_an_experiment",
    "test_deploy.py::test_board_and_rules_on_a_real_prometheus",
    "test_drills.py::test_blocked_is_freed",
    "test_unnamed.py::test_many_of_somebody_elses_do_not_stand_in_the_way_of_roots[stop]",
    "test_screen.py::test_a_silent_daemon_of_a_strangers_accuses_in_vain",
    "test_pty_monkey.py::",
    "test_commands.py::test_commands_of_others_are_no_held_session",
    "test_advice.py::test_a_silent_daemon",
    "test_pty_private.py::test_it_starts_paints_and_heeds_keys_where_names_are_missing",
    "test_typed_ahead_pty.py::test_what_follows_an_opening_key_at_once_reaches_only_what_it_opened[-overview]",
    "test_typed_ahead_pty.py::test_what_follows_an_opening_key_at_once_reaches_only_what_it_opened[-past]",
    "test_replay_drivers.py::test_every_recorded_start_comes_out_as_it_was[555",
    "test_namespaces_screen.py::test_a_namespace_is_made_limited_and_deleted_by_keys",
    "test_exchanged.py::test_who_takes_the_place_of_roots_daemon_is_told_of_and_does_not_make_it_his",
    "test_exchanged.py::test_a_daemon_that_does_not_listen_at_all_of_its_sockets_yet_is_starting",
    "test_gather.py::test_a_binary_that_hangs_is_not_waited_for",
    "test_units.py::test_a_command_that_meets_somebody_elses_session_is_sent_again",
    "test_cli.py::test_nbody_times_a_fixed_amount_of_work_with_and_without_mps",
    "test_cli.py::test_stop_tells_the_safe_ways_from_the_others[safe]",
    "test_backend.py::test_a_daemon_that_is_started_comes_onto_a_screen_for_another_directory",
)
"""Tests that take more than ten seconds on a busy machine, most of them because they wait."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=("all", "usual", "slow"), default="all", help="which tests: see the mark slow")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The directory of a node is below the tests' own, which has the user's name in its path: a long one does not leave
    enough for its sockets."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # pytest has a name for who has none
        name = ""
    if config.option.basetemp is None and len(name) > len("nobody"):
        config.option.basetemp = tempfile.mkdtemp(prefix="pytest-", dir="/tmp")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_others(config, items)
    _long_ones_first(items)


def _leave_out_others(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The parts have no test in common, and all tests together. One case of each slow test of several is a usual one,
    so that each rule that holds for many cases is tried on one of them."""
    part = config.getoption("part")
    if part == "all":
        return
    seen = set[tuple[Path, str]]()
    parts: dict[str, list[pytest.Item]] = {"usual": [], "slow": []}
    for item in items:
        name = (item.path, item.nodeid.partition("[")[0])
        first_case = hasattr(item, "callspec") and name not in seen
        seen.add(name)
        slow = item.get_closest_marker("slow") is not None and not first_case
        parts["slow" if slow else "usual"].append(item)
    items[:] = parts.pop(part)
    (others,) = parts.values()
    config.hook.pytest_deselected(items=others)


def _long_ones_first(items: list[pytest.Item]) -> None:
    """The long ones come first, some to each worker, whose part of the tests is one piece of the list: none of them is
    left for the end, when the others have nothing more to do."""
    long = [item for item in items if any(name in item.nodeid for name in _LONG)]
    early = set(long)
    rest = [item for item in items if item not in early]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    total = len(items)
    items.clear()
    for number in range(workers):
        size = (total - len(items)) // (workers - number)
        first = long[number::workers]
        taken = max(0, size - len(first))
        items += [*first, *rest[:taken]]
        del rest[:taken]
    items += rest


def pytest_collection_finish() -> None:
    """From here on there is garbage; thousands of tests are not looked through for it again and again, nor is all that
    an app has while it starts: with Python's own thresholds that is a fifth of what tests of the screen take, for
    20 MiB less of memory."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
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
    """For a daemon that is blocked."""
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", usual())
