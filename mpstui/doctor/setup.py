"""Checks of what MPS stands on: driver, binary, directories, logs, memory, limits of processes, device modes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mpstui.control.drivers import driver_of, number_of
from mpstui.core.model import Daemon
from mpstui.core.text import format_size, owner, path_text, path_word, plural
from mpstui.core.trust import NOBODY
from mpstui.doctor.types import SHM, DirectoryFacts, Facts, Finding, Stray
from mpstui.observe.discovery import PATH_LIMIT
from mpstui.system.trusted import REMEDY

OPEN_FILES: Final = 16384
"""Recommended: each client takes several descriptors of daemon and server."""
_LARGE_LOG: Final = 1 << 30
_FAST_LOG: Final = 10 << 20
"""Bytes an hour: a ``ps`` each second writes about 1 MB an hour without a client, and 15 with 46 (fact 8)."""
_SHM: Final = 64 << 20
_SILENT: Final = "without MPS, and no error says so"
_SHARED: Final = (
    "nfs",
    "lustre",
    "gpfs",
    "cifs",
    "smb",
    "beegfs",
    "ceph",
    "glusterfs",
    "afs",
    "9p",
    "orangefs",
    "fuse.",
)


def driver(facts: Facts) -> Iterator[Finding]:
    """Whether the driver and NVML answer, with one version."""
    snapshot = facts.snapshot
    if snapshot.nvml_detail is not None:
        yield Finding(
            "driver", "error", "NVML", snapshot.nvml_detail, "See the reason; nvidia-smi has the same trouble."
        )
    elif snapshot.driver_version is None:
        yield Finding("driver", "unknown", "NVML", "no reading of the driver was taken")
    else:
        devices = len(snapshot.devices)
        text = f"driver {snapshot.driver_version}, {plural(devices, 'device')}"
        yield Finding("driver", "ok", "NVML", text)


def binary(facts: Facts) -> Iterator[Finding]:
    """Whether the control binary is there and of the daemons' version."""
    found = facts.binary
    if found.path is None:
        remedy = "Install the MPS binaries, put them on PATH, or set MPSTUI_CONTROL_BINARY."
        yield Finding("binary", "error", "nvidia-cuda-mps-control", found.trouble or "it is not on PATH", remedy)
        return
    if found.version is None and found.options in {"none", "usage"}:
        text = f"{found.path}; {found.trouble}, as those up to driver 555"
        yield Finding("binary", "ok", "nvidia-cuda-mps-control", text)
        return
    if found.version is None:
        text = f"{found.path}: {found.trouble or 'it does not say its version'}"
        yield Finding("binary", "unknown", "nvidia-cuda-mps-control", text)
        return
    yield Finding("binary", "ok", "nvidia-cuda-mps-control", f"{found.path}, version {found.version}")
    for daemon in facts.snapshot.daemons:
        if daemon.version is None or daemon.pid is None:
            continue
        if daemon.version == found.version:
            text = f"the daemon is of the same version, {daemon.version}"
            yield Finding("binary", "ok", f"daemon {daemon.pid}", text)
        else:
            text = f"the daemon is of version {daemon.version}, the binary of {found.version}"
            yield Finding(
                "binary", "warning", f"daemon {daemon.pid}", text, "Restart the daemon when its clients have ended."
            )


def server_binary(facts: Facts) -> Iterator[Finding]:
    """The daemon starts the server's binary itself; nobody else should."""
    if facts.server_trouble and not facts.server_binary:
        text = f"it is not beside the control binary, and {facts.server_trouble}"
        yield Finding(
            "server_binary", "warning", "nvidia-cuda-mps-server", text, "Install it beside the control binary, as root."
        )
    elif facts.server_trouble:
        text = f"a daemon of root's starts it, and others can change it: {facts.server_trouble}"
        remedy = "Until then start no daemon as root: others' programs could run with root's rights."
        yield Finding("server_binary", "error", "nvidia-cuda-mps-server", text, remedy)
    elif facts.server_binary:
        text = f"{facts.server_binary}: the daemon starts it, never start it yourself"
        yield Finding("server_binary", "ok", "nvidia-cuda-mps-server", text)
    elif facts.server_binary is not None:
        text = "it is neither beside the control binary nor on PATH: the daemon can start no server"
        remedy = (
            "Install the driver's whole compute package; in containers set NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )
        yield Finding("server_binary", "warning", "nvidia-cuda-mps-server", text, remedy)


def strangers(facts: Facts) -> Iterator[Finding]:
    """What the driver lets users do who do not own the daemon (fact 48)."""
    modes = {place.pipe_dir: place.mode for place in facts.directories}
    for daemon in facts.snapshot.daemons:
        if daemon.pid is None:
            continue
        subject, driver, mode = f"daemon {daemon.pid}", driver_of(daemon.driver), modes.get(daemon.pipe_dir)
        if mode is not None and not mode & 0o011:
            yield Finding("strangers", "ok", subject, "no other user may enter its directory")
        elif daemon.named_servers:
            text = "what protocol 3 lets other users do is not known"
            yield Finding("strangers", "unknown", subject, text)
        elif driver is None:
            named = "a driver that is not known" if daemon.driver is None else f"driver {number_of(daemon.driver)}"
            yield Finding("strangers", "unknown", subject, f"what {named} lets other users do is not known")
        elif driver.strangers_set:
            text = f"with driver {driver.number} every local user may change the defaults for new servers"
            remedy = (
                "Driver 550 and later refuse that. Until then look at “events --kind command” for who changes what."
            )
            yield Finding("strangers", "warning", subject, text, remedy)
        else:
            text = f"with driver {driver.number} other users may ask, and change nothing of others'"
            said = " (as its documents say)" if driver.source == "documented" else ""
            yield Finding("strangers", "ok", subject, text + said)


def pipe_directory(facts: Facts) -> Iterator[Finding]:
    """Whether each directory can be what it is for: reachable, short, local, not open to everybody, not left over."""
    for place in facts.directories:
        subject = path_text(place.pipe_dir)
        found = list(_directory(place, subject))
        if facts.snapshot.source == "real" and place.daemon_uid == 0 and place.mode is not None:
            found += _closed(place, place.mode, subject)
        found += _exchanged(place, facts.snapshot.daemon(place.pipe_dir), subject)
        yield from found or [Finding("pipe_dir", "ok", subject, _about(place))]


def _directory(place: DirectoryFacts, subject: str) -> Iterator[Finding]:
    if place.length > PATH_LIMIT:
        text = f"its path has {place.length} bytes; beyond {PATH_LIMIT} a daemon fails to start, and no error says why"
        yield Finding("pipe_dir", "error", subject, text, "Use a shorter path.")
    if place.state in {"absent", "unusable", "closed"}:
        yield Finding("pipe_dir", "error", subject, place.detail or "no daemon runs there", place.remedy)
    elif place.state == "stale":
        yield Finding("pipe_dir", "warning", subject, place.detail or "files of a daemon that is gone", place.remedy)
    if place.filesystem is not None and place.filesystem.startswith(_SHARED):
        text = f"it is on {place.filesystem}, which other hosts share; its sockets work on this one alone"
        yield Finding("pipe_dir", "warning", subject, text, "Use a local directory, as in /tmp or /run.")
    if place.mode is not None and place.mode & 0o002 and not place.mode & 0o1000:
        text = f"its mode is {place.mode:04o}: everybody can put other sockets in the place of the daemon's"
        yield Finding("pipe_dir", "warning", subject, text, _closing(place))
    if place.owner is not None and place.daemon_uid is not None and place.owner not in {0, place.daemon_uid}:
        text = f"it belongs to UID {place.owner}, the daemon to UID {place.daemon_uid}"
        yield Finding("pipe_dir", "warning", subject, text, "Give the directory to the daemon's user.")


def _exchanged(place: DirectoryFacts, daemon: Daemon | None, subject: str) -> Iterator[Finding]:
    """Who else can lead commands and clients to another daemon, where its mode does not tell."""
    if daemon is None or not daemon.runs or daemon.speaker == NOBODY:
        return
    if daemon.speaker.uid is None:
        text = f"the owner of the daemon there is not known: {daemon.speaker.why}; as root mpstui changes nothing there"
        remedy = daemon.speaker.remedy or "Give it a directory that its user and root alone can change."
        yield Finding("pipe_dir", "warning", subject, text, remedy)
    elif daemon.speaker.stamp and not daemon.speaker.sticky and place.mode is not None and not place.mode & 0o002:
        text = f"its mode is {place.mode:04o}: its group, or users in its ACL, can replace the daemon's sockets"
        yield Finding("pipe_dir", "warning", subject, text, _closing(place))


def _closing(place: DirectoryFacts) -> str:
    """How others are shut out of it, or let in. A command is given for a directory that its name leads to for certain:
    another's name may hold words of a shell, and may be a link to any file by the time that root runs it."""
    if place.ours:
        return f"chmod 755 {path_word(place.pipe_dir)}"
    return "The owner must set mode 755. Do not change it as root: the path can be a link to another file"


def _closed(place: DirectoryFacts, mode: int, subject: str) -> Iterator[Finding]:
    if not mode & 0o001:
        text = f"its mode is {mode:04o}: only its owner's clients reach the daemon; other programs run {_SILENT}"
        yield Finding("pipe_dir", "warning", subject, text, f"{_closing(place)}, unless that is meant.")


def _about(place: DirectoryFacts) -> str:
    mode = "" if place.mode is None else f", mode {place.mode:04o}"
    where = place.filesystem or "a file system not known"
    return f"{place.state}, its path is {place.length} bytes long{mode}, on {where}"


def logs(facts: Facts) -> Iterator[Finding]:
    """Whether the logs can be read, and how they grow."""
    for log in facts.logs:
        subject = path_text(log.path)
        if log.trouble is not None:
            remedy = "Let this user read it: mpstui then sees changes without asking the daemon."
            remedy = remedy if log.believed else REMEDY
            yield Finding("logs", "warning", subject, log.trouble, remedy)
            continue
        rate = "" if log.bytes_per_hour is None else f", {format_size(int(log.bytes_per_hour))} an hour lately"
        text = f"{format_size(log.size)}{rate}"
        text += "" if log.free is None else f", {format_size(log.free)} left on its file system"
        slow = "Find who asks the daemon so often (events --kind command), and rotate the log (copytruncate)."
        if log.free is not None and log.bytes_per_hour and log.free < log.bytes_per_hour * 24:
            yield Finding("logs", "error", subject, f"{text}: full in less than a day", slow)
        elif (log.size or 0) > _LARGE_LOG or (log.bytes_per_hour or 0) > _FAST_LOG:
            yield Finding("logs", "warning", subject, text, slow)
        else:
            yield Finding("logs", "ok", subject, text)


def shared_memory(facts: Facts) -> Iterator[Finding]:
    """What a server and its clients share."""
    shm = facts.shm
    remedy = "Mount a tmpfs of 1 GiB or more there, mode 1777; for a container --shm-size or --ipc=host."
    if not shm.exists:
        yield Finding("shm", "error", SHM, "it is not there", remedy)
    elif shm.mode is not None and shm.mode & 0o1777 != 0o1777:
        yield Finding("shm", "warning", SHM, f"its mode is {shm.mode:04o}, not 1777", remedy)
    elif shm.free is not None and shm.free < _SHM:
        yield Finding("shm", "warning", SHM, f"{format_size(shm.free)} left", remedy)
    else:
        yield Finding("shm", "ok", SHM, f"{format_size(shm.free)} left")


def open_files(facts: Facts) -> Iterator[Finding]:
    """File descriptor limits of daemons and servers."""
    for process in facts.processes:
        subject = f"{process.name} {process.pid}"
        if process.open_files is None:
            yield Finding("open_files", "unknown", subject, "its limits cannot be read", "Run mpstui as root.")
        elif process.open_files < OPEN_FILES:
            text = f"it may open {process.open_files} files; {OPEN_FILES} are recommended"
            yield Finding(
                "open_files", "warning", subject, text, f"ulimit -n {OPEN_FILES} before the daemon is started."
            )
        else:
            yield Finding("open_files", "ok", subject, f"it may open {process.open_files} files")


def stray_processes(facts: Facts) -> Iterator[Finding]:
    """Servers and daemons that have ended and were not collected, or whose daemon is gone."""
    for stray in facts.strays:
        found = _stray(stray)
        if stray.uid is not None:
            text = f"{found.evidence}; it belongs to {owner(None, stray.uid)}, and anybody can give a process this name"
            found = replace(found, verdict="unknown", evidence=text, remedy="Leave it to its owner.")
        yield found
    if not facts.strays:
        yield Finding("stray", "ok", "servers", "each belongs to a running daemon")


def _stray(stray: Stray) -> Finding:
    subject = f"{stray.name} {stray.pid}"
    if stray.unprintable:
        text = "its directory has a name that cannot be printed, so that mpstui leaves the daemon out"
        return Finding("stray", "warning", subject, text, "Ask its user what it is for, or end it.")
    if stray.zombie:
        text = f"it has ended, but its parent, process {stray.parent}, has not collected it (a zombie)"
        remedy = "It holds no GPU and clears when its parent ends. In a container, run an init as PID 1."
        return Finding("stray", "warning", subject, text, remedy)
    text = f"no control daemon is its parent (process {stray.parent} is)"
    return Finding("stray", "error", subject, text, f"Its daemon is gone; end it: kill {stray.pid}")


def compute_mode(facts: Facts) -> Iterator[Finding]:
    """EXCLUSIVE_PROCESS lets nobody compute past MPS. Only told, never set."""
    for device in facts.snapshot.devices:
        mode, subject = device.compute_mode, device.called
        if mode is None:
            yield Finding("compute_mode", "unknown", subject, "NVML does not tell its compute mode")
        elif mode == "Prohibited":
            remedy = f"nvidia-smi -i {device.index} -c EXCLUSIVE_PROCESS"
            yield Finding("compute_mode", "error", subject, "its compute mode is Prohibited", remedy)
        elif not device.exclusive:
            text = f"its compute mode is {mode}: a program that does not find the daemon runs {_SILENT}"
            remedy = f"With one daemon for it: nvidia-smi -i {device.index} -c EXCLUSIVE_PROCESS (holds for all users)"
            yield Finding("compute_mode", "warning", subject, text, remedy)
        else:
            text = "its compute mode is Exclusive_Process: it lets in one process, the MPS server, and all its clients"
            yield Finding("compute_mode", "ok", subject, text)


def meters(facts: Facts) -> Iterator[Finding]:
    """Whether how busy the SMs are can be told: by NVML from Hopper on, else by DCGM, where that is wished."""
    without = [device for device in facts.snapshot.devices if device.sm_utilization is None]
    if facts.dcgm is not None and facts.snapshot.devices and not without:
        yield Finding("meters", "ok", "devices", "NVML tells SM activity of all: DCGM is not asked (dcgm = true)")
    for device in without:
        text = "NVML tells no SM activity of it: GPU-Util and NVML's memory utilisation are shown instead"
        remedy = ""
        if facts.dcgm is None:
            remedy = "If DCGM is installed, set dcgm = true in the configuration: mpstui then asks DCGM."
        elif facts.dcgm:
            text += f"; dcgm = true is set, but mpstui cannot ask DCGM: {facts.dcgm}"
            remedy = "Install DCGM's dcgmi as root, or take dcgm out of the configuration."
        else:
            text += " until DCGM has answered: mpstui asks it in the background (dcgm = true)"
        yield Finding("meters", "warning" if facts.dcgm else "ok", device.called, text, remedy)


def activity(facts: Facts) -> Iterator[Finding]:
    """Whether the launches of single clients can be counted: nothing else tells who uses a GPU (facts 40, 41)."""
    if facts.counting is None:
        return
    how, why = facts.counting
    if why is None:
        yield Finding("activity", "ok", "launches", f"kernel launches can be counted for each client, by {how}")
    elif how:
        text = f"kernel launches can be counted for a few clients, by {how}; for more, BPF has to be permitted: {why}"
        yield Finding("activity", "ok", "launches", text)
    else:
        text = f"kernel launches cannot be counted for each client: {why}"
        yield Finding("activity", "unknown", "launches", text, "On a kernel from 4.17 on, run mpstui as root.")


def persistence(facts: Facts) -> Iterator[Finding]:
    """Without it the driver unloads when the last process ends, and the next start takes seconds."""
    for device in facts.snapshot.devices:
        subject = device.called
        if device.persistence is None:
            yield Finding("persistence", "unknown", subject, "NVML does not tell its persistence mode")
        elif device.persistence:
            yield Finding("persistence", "ok", subject, "persistence mode is on")
        else:
            remedy = "Run nvidia-persistenced, or nvidia-smi -pm 1."
            yield Finding("persistence", "warning", subject, "persistence mode is off", remedy)


def mig(facts: Facts) -> Iterator[Finding]:
    """A daemon sees one MIG instance at most."""
    for device in facts.snapshot.devices:
        if device.mig is None:
            yield Finding("mig", "unknown", device.called, "NVML does not tell whether it is divided (MIG)")
        elif device.mig:
            text = "it is divided (MIG): a daemon serves the one instance that its CUDA_VISIBLE_DEVICES names"
            yield Finding(
                "mig", "warning", device.called, text, "Run one daemon for each instance, each in its directory."
            )
        else:
            yield Finding("mig", "ok", device.called, "it is not divided (MIG)")
