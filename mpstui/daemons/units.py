"""Texts that start and stop daemons without mpstui: a systemd unit, a Slurm and a PBS script, as the vendor's guide
asks: start, exclusive mode, a server for the job's user, stop, and a look for processes that are left.

They are printed for an admin to read and install; mpstui itself runs none of it, and changes no compute mode.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Final, Literal

from mpstui.core.text import path_text, unprintable
from mpstui.daemons.spec import DaemonSpec
from mpstui.plan.amounts import PlanError, limit_text, printed_limit
from mpstui.plan.cpus import cpu_text

UnitKind = Literal["systemd", "slurm", "pbs"]
_LIMITED: Final = "/usr/bin/timeout -k 5"
_STEERED: Final = (
    'test -z "$$(find "$$@" -prune "(" ! -uid 0 ! -uid "$$(id -u)" -o ! -type l -perm -002 ! -perm -1000 ")")"'
)
"""Whoever owns a directory of the way, or may write to it, can put another in the daemon's place while it runs."""
QUIT_AFTER: Final = 10
"""Seconds that clients get at the end of a job or of the unit."""


def unit_text(kind: UnitKind, specs: Sequence[DaemonSpec]) -> str:
    """The text; a systemd unit is one daemon's. Raises PlanError."""
    for spec in specs:
        for path in (spec.pipe_dir, spec.log_dir):
            if (problem := unprintable(path)) is not None:
                raise PlanError(problem)
    if kind == "systemd":
        return "\n".join(_systemd(spec) for spec in specs)
    return _script(kind, specs)


def _commands(spec: DaemonSpec) -> list[tuple[str, str, str]]:
    """For each limit the command that sets it, the one that reads it back, and what that must print: a value that the
    daemon ignores is an answer like any other (fact 5).
    """
    limits = spec.limits
    found: list[tuple[str, str, str]] = []
    if (percentage := limits.active_thread_percentage) is not None:
        what = "default_active_thread_percentage"
        found.append((f"set_{what} {percentage:g}", f"get_{what}", f"{percentage:.1f}"))
    for device, size in limits.pinned_mem_limits.items():
        what = f"default_device_pinned_mem_limit {device}"
        found.append((f"set_{what} {limit_text(size)}", f"get_{what}", printed_limit(size)))
    if limits.client_priority is not None:
        what = "default_client_priority"
        found.append((f"set_{what} {limits.client_priority}", f"get_{what}", str(limits.client_priority)))
    return found


def _unit_name(spec: DaemonSpec) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", spec.pipe_dir.name)
    return name if name.startswith("nvidia") else f"nvidia-{name}"


def _systemd(spec: DaemonSpec) -> str:
    control = "/usr/bin/nvidia-cuda-mps-control"
    own = (spec.pipe_dir, spec.log_dir)
    folders = " ".join(_word(os.fspath(path)) for path in own)
    lines = [
        f"# /etc/systemd/system/{_unit_name(spec)}.service",
        "[Unit]",
        # A backslash at the end of a line would join the next one to it, whatever is before it.
        f"Description=NVIDIA MPS control daemon ({_escape(path_text(spec.pipe_dir))})",
        "Wants=nvidia-persistenced.service",
        "After=nvidia-persistenced.service",
        "",
        "[Service]",
        "Type=forking",
        _setting(f"CUDA_MPS_PIPE_DIRECTORY={path_text(spec.pipe_dir)}"),
        _setting(f"CUDA_MPS_LOG_DIRECTORY={path_text(spec.log_dir)}"),
    ]
    if spec.devices:
        lines.append(_setting(f"CUDA_VISIBLE_DEVICES={','.join(spec.devices)}"))
    if spec.cpus:
        lines.append(f"CPUAffinity={cpu_text(spec.cpus)}")
    lines.append(f"ExecStartPre={_LIMITED} 20 /usr/bin/mkdir -p -m 0755 {folders}")
    # Whoever has made one before, in /tmp, could take the daemon's place.
    for word in (_word(os.fspath(folder)) for folder in own):
        lines.append(f"ExecStartPre={_LIMITED} 20 /usr/bin/test -O {word} -a ! -L {word}")
    above = dict.fromkeys(os.fspath(place) for folder in own for place in folder.parents)
    lines.append(f"ExecStartPre={_LIMITED} 20 /bin/sh -c '{_STEERED}' - {' '.join(map(_word, above))}")
    lines += [f"ExecStartPre={_LIMITED} 60 /usr/bin/nvidia-smi -i {uuid} -c EXCLUSIVE_PROCESS" for uuid in spec.devices]
    lines.append(f"ExecStart={_LIMITED} 60 {control} {' '.join(('-d', *spec.options))}")
    lines += [
        f"ExecStartPost=/bin/sh -c 'echo {command} | {_LIMITED} 20 {control}'" for command, _, _ in _commands(spec)
    ]
    lines.append(f"ExecStop=/bin/sh -c 'echo quit -t {QUIT_AFTER} | {_LIMITED} {QUIT_AFTER + 20} {control}'")
    lines += [f"ExecStopPost=-{_LIMITED} 60 /usr/bin/nvidia-smi -i {uuid} -c DEFAULT" for uuid in spec.devices]
    lines += [
        f"TimeoutStopSec={QUIT_AFTER + 30 + 65 * len(spec.devices)}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _escape(text: str) -> str:
    return text.replace("%", "%%")


def _setting(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'Environment="{_escape(quoted)}"'


def _word(text: str) -> str:
    """One word of a command line of systemd's, which expands ``$`` there and ``%`` everywhere."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_escape(quoted)}"'


_HEADS: Final = {
    "slurm": """\
#!/bin/sh
# For Slurm's Prolog= and Epilog=, both of them: run as root on the node, before and behind a job.
set -u
limited() { timeout -k 5 "$@"; }  # nothing holds the node up for longer
part=${SLURM_SCRIPT_CONTEXT:-$(basename "$0")}
user=${SLURM_JOB_UID:-0}
fail() { echo "mps: $1" >&2; exit 1; }  # Slurm drains the node
""",
    "pbs": """\
#!/bin/sh
# For PBS as mom_priv/prologue and mom_priv/epilogue, both of them: run as root, before and behind a job.
set -u
limited() { timeout -k 5 "$@"; }  # nothing holds the node up for longer
part=$(basename "$0")
user=$(limited 20 id -u "${2:-root}") || exit 1
fail() { echo "mps: $1" >&2; limited 20 pbsnodes -o "$(uname -n)" -C "$1" 2>/dev/null; exit 1; }
""",
}

_BODY: Final = """
me=$(limited 20 id -u) || fail "the user is not known"
control() { printf '%s\\n' "$1" | limited "${2:-20}" nvidia-cuda-mps-control; }

# Whether process $1 is a daemon of this user in this directory. Not by its PID file, which everybody may write to, and
# not by the owner of /proc/$1, which is root for some processes of others.
is_ours() {
    uid=
    while read -r key _ effective _; do
        [ "$key" != Uid: ] || uid=$effective
    done 2>/dev/null <"/proc/$1/status"
    [ "$uid" = "$me" ] || return 1
    words=$(limited 5 tr '\\0' '\\n' 2>/dev/null <"/proc/$1/cmdline")  # of a zombie there are none
    printf '%s\\n' "$words" | head -n 2 | grep -Eqx '(.*/)?nvidia-cuda-mps-control' || return 1
    printf '%s\\n' "$words" | grep -Eqx -e '-[A-Za-z]*[df].*|--daemon|--foreground' || return 1
    limited 5 tr '\\0' '\\n' 2>/dev/null <"/proc/$1/environ" |
        grep -Fqx "CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY"
}

ours() {
    for process in /proc/[0-9]*; do
        name=
        { read -r name <"$process/comm"; } 2>/dev/null
        case $name in
        nvidia-cuda-mps* | python* | pypy*)  # an interpreter may run a stand-in
            if is_ours "${process#/proc/}"; then echo "${process#/proc/}"; fi
            ;;
        esac
    done 2>/dev/null
}

# Whether somebody else owns, or may write to, a directory of the way to $1: he could exchange what is below it.
steered() {
    way=$1
    while [ "$way" != / ] && [ "$way" != . ]; do
        way=$(dirname "$way")
        found=$(limited 20 find "$way" -prune \
            "(" ! -user 0 ! -user "$me" -o ! -type l -perm -002 ! -perm -1000 ")") || return 0
        [ -z "$found" ] || return 0
    done
    return 1
}

start() {
    for folder in "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"; do
        [ -d "$folder" ] || limited 20 install -d -m 0755 "$folder" || fail "no directory $folder"
        # Whoever has made it before, in /tmp, could take the daemon's place.
        own=$(limited 20 find "$folder" -prune -type d -user "$me" ! -perm -020 ! -perm -002)
        [ -n "$own" ] || fail "$folder is a link, or not this user's alone to write to"
        real=$(limited 20 readlink -f "$folder") || fail "no way to $folder"
        if steered "$folder" || steered "$real"; then fail "others can exchange what is above $folder"; fi
    done
    for gpu in $gpus; do
        limited 60 nvidia-smi -i "$gpu" -c EXCLUSIVE_PROCESS >/dev/null || fail "no exclusive mode on $gpu"
    done
    if [ -n "$cpus" ]; then set -- taskset -c "$cpus" "$@"; fi
    limited 60 "$@" || fail "the daemon did not start"
    tries=0
    # Its answer is never empty; with others, status 0 and no word can mean that the command was refused.
    until [ -n "$(control get_default_active_thread_percentage 2 2>/dev/null)" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || fail "the daemon does not answer"
        sleep 0.1
    done
}

set_limit() {
    control "$1" >/dev/null
    [ "$(control "$2")" = "$3" ] || fail "not in force: $1"
}

stop() {
    control 'quit -t @QUIT@' @DEADLINE@ >/dev/null 2>&1
    # A daemon that is left, and whatever still computes, keeps the next job from the GPU. It answers a moment before
    # it ends.
    tries=0
    while daemon=$(ours) && [ -n "$daemon" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || fail "the daemon did not end: process $(echo "$daemon" | tr '\\n' ' ')"
        sleep 0.1
    done
    for gpu in $gpus; do
        left=$(limited 60 nvidia-smi -i "$gpu" --query-compute-apps=pid --format=csv,noheader) ||
            fail "nvidia-smi fails on $gpu"
        [ -z "$left" ] || fail "processes are left on $gpu: $(echo "$left" | tr '\\n' ' ')"
        limited 60 nvidia-smi -i "$gpu" -c DEFAULT >/dev/null
    done
}
"""


def _script(kind: UnitKind, specs: Sequence[DaemonSpec]) -> str:
    body = _BODY.replace("@QUIT@", str(QUIT_AFTER)).replace("@DEADLINE@", str(QUIT_AFTER + 20))
    head = _HEADS[kind]
    if all(spec.multi_user for spec in specs):  # then no server is started for the job's user
        head = "".join(line for line in head.splitlines(keepends=True) if not line.startswith("user="))
    lines = [head, body.lstrip("\n"), 'case "$part" in', "prolog*)"]
    for spec in specs:
        lines.append(_environment(spec))
        lines.append(f"    start nvidia-cuda-mps-control {' '.join(('-d', *spec.options))}")
        lines += [
            f"    set_limit {shlex.quote(command)} {shlex.quote(read)} {shlex.quote(wanted)}"
            for command, read, wanted in _commands(spec)
        ]
        if not spec.multi_user:
            lines.append('    control "start_server -uid $user" >/dev/null || fail "no server for the job\'s user"')
    lines += ["    ;;", "epilog*)"]
    for spec in specs:
        lines += [_environment(spec), "    stop"]
    lines += ["    ;;", "*)", '    fail "is this the prologue or the epilogue? $part says neither"', "    ;;", "esac"]
    return "\n".join(lines) + "\n"


def _environment(spec: DaemonSpec) -> str:
    variables = {
        "CUDA_MPS_PIPE_DIRECTORY": os.fspath(spec.pipe_dir),
        "CUDA_MPS_LOG_DIRECTORY": os.fspath(spec.log_dir),
    }
    lines = [f"    export {name}={shlex.quote(value)}" for name, value in variables.items()]
    devices = ",".join(spec.devices)
    lines.append(
        f"    export CUDA_VISIBLE_DEVICES={shlex.quote(devices)}" if devices else "    unset CUDA_VISIBLE_DEVICES"
    )
    cpus = cpu_text(spec.cpus) if spec.cpus else ""
    lines.append(f"    gpus={shlex.quote(' '.join(spec.devices))} cpus={shlex.quote(cpus)}")
    return "\n".join(lines)
