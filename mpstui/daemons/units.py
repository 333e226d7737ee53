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

from mpstui.core.late import pattern
from mpstui.core.text import path_text, printable, unprintable
from mpstui.daemons.spec import DaemonSpec
from mpstui.observe.discovery import OPENED
from mpstui.plan.amounts import PlanError, limit_text, printed_limit
from mpstui.plan.cpus import cpu_text

UnitKind = Literal["systemd", "slurm", "pbs", "pbs-hook"]
JOBS: Final = "/run/mpstui-jobs"
"""Where a prologue notes which job has MPS; root's alone to write to."""
OPT_INS: Final = {
    "slurm": ("comment", "constraint", "partition", "account", "licence", "gres"),
    "pbs": ("account",),
    "pbs-hook": (),
    "systemd": (),
}
"""By what a job can ask for MPS, by the kind of unit."""
_OPT_IN: Final = pattern(r"([a-z]+)=([A-Za-z0-9_.:+=@/-]{1,100})")
_LIMITED: Final = "/usr/bin/timeout -k 5"
_STEERED: Final = (
    'test -z "$$(find "$$@" -prune "(" ! -uid 0 ! -uid "$$(id -u)" -o ! -type l -perm -002 ! -perm -1000 ")")"'
)
"""Whoever owns a directory of the way, or may write to it, can put another in the daemon's place while it runs."""
_LEFT: Final = f'-mindepth 1 -maxdepth 1 "(" {" -o ".join(f"-name {name}" for name in OPENED)} ")"'
"""What a daemon opens in its directories: before they were closed to others, somebody may have left a link there."""
_LEFT_BY_OTHERS: Final = f'test -z "$$(find "$$@" {_LEFT} ! -uid 0 ! -uid "$$(id -u)")"'
QUIT_AFTER: Final = 10
"""Seconds that clients get at the end of a job or of the unit."""
_CONTROL: Final = "/usr/bin/nvidia-cuda-mps-control"
_END_OF_V3: Final = (
    f"{_LIMITED} 20 {_CONTROL} server list --format=csv,noheader | cut -d, -f1 | "
    f'while read -r name; do {_LIMITED} 20 {_CONTROL} server delete "$$name" --force </dev/null; done'
)
"""Behind it systemd sends SIGTERM, as mpstui does."""
_DEVICE: Final = pattern(r"(?:GPU|MIG)-[0-9A-Za-z-]{30,60}")


def unit_text(kind: UnitKind, specs: Sequence[DaemonSpec], opt_in: str | None = None) -> str:
    """The text; a systemd unit is one daemon's. ``opt_in``: the jobs that get MPS, ``comment=mps``; None: all. Raises
    PlanError."""
    for spec in specs:
        for path in (spec.pipe_dir, spec.log_dir):
            if (problem := unprintable(path)) is not None:
                raise PlanError(problem)
    if kind != "systemd" and any(spec.partitions for spec in specs):
        raise PlanError(
            "a job script cannot create partitions, but the profile has partitions: remove them from the profile, or "
            "run a separate daemon for them (mpstui daemon unit systemd)"
        )
    if kind != "systemd" and any(spec.named_servers for spec in specs):
        raise PlanError(
            "a job script works with protocol 2 only: for 3, run a separate daemon (mpstui daemon unit systemd)"
        )
    if kind == "systemd":
        _asked_for(kind, opt_in)
        return "\n".join(_systemd(spec) for spec in specs)
    if kind == "pbs-hook":
        _asked_for(kind, opt_in)
        return _pbs_hook(specs)
    return _script(kind, specs, opt_in)


def _asked_for(kind: UnitKind, opt_in: str | None) -> tuple[str, str] | None:
    """By what a job asks for MPS, and the word. Raises PlanError."""
    if opt_in is None:
        return None
    match, known = _OPT_IN.fullmatch(opt_in), OPT_INS[kind]
    if match is None or match[1] not in known:
        ways = ", ".join(f"{name}=WORD" for name in known) or "none"
        raise PlanError(f"--opt-in {printable(opt_in, 60)!r}: for {kind} there is {ways}")
    return match[1], match[2].lower()


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
    control = _CONTROL
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
        # Of protocol 3 the daemon is ended by its signal, and its servers before.
        *(("KillMode=mixed",) if spec.named_servers else ()),
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
    lines.append(f"ExecStartPre={_LIMITED} 20 /bin/sh -c '{_LEFT_BY_OTHERS}' - {folders}")
    if spec.partitions:
        lines.append(f"RuntimeDirectory={_unit_name(spec)}")
    above = dict.fromkeys(os.fspath(place) for folder in own for place in folder.parents)
    lines.append(f"ExecStartPre={_LIMITED} 20 /bin/sh -c '{_STEERED}' - {' '.join(map(_word, above))}")
    lines += [f"ExecStartPre={_LIMITED} 60 /usr/bin/nvidia-smi -i {uuid} -c EXCLUSIVE_PROCESS" for uuid in spec.devices]
    lines.append(f"ExecStart={_LIMITED} 60 {control} {' '.join(('-d', *spec.options))}")
    lines += [
        f"ExecStartPost=/bin/sh -c 'echo {command} | {_LIMITED} 20 {control}'" for command, _, _ in _commands(spec)
    ]
    lines += [_partition(spec, number) for number in range(1, len(spec.partitions) + 1)]
    quit_ = f"echo quit -t {QUIT_AFTER} | {_LIMITED} {QUIT_AFTER + 20} {control}"
    lines.append(f"ExecStop=/bin/sh -c '{_END_OF_V3 if spec.named_servers else quit_}'")
    lines += [f"ExecStopPost=-{_LIMITED} 60 /usr/bin/nvidia-smi -i {uuid} -c DEFAULT" for uuid in spec.devices]
    lines += [
        f"TimeoutStopSec={QUIT_AFTER + 30 + 65 * len(spec.devices)}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _partition(spec: DaemonSpec, number: int) -> str:
    """The line that makes one, and leaves its name for services that compute in it: ids are new with each start. What
    is printed tells whether it was made, as the exit status is 0 either way."""
    device, chunks = spec.partitions[number - 1]
    if not _DEVICE.fullmatch(device):
        raise PlanError(
            f"partition {number}: a unit names a device by its whole UUID, and not as {printable(device, 40)!r}"
        )
    name = rf"s|^(Partition )?({device}/)?([A-Za-z0-9+/=_-]{{16,}})( created[.]?)?$$|\\3|p"
    return (
        f"ExecStartPost=/bin/sh -c 'made=$$(echo sm_partition add {device} {chunks} | {_LIMITED} 20 {_CONTROL} | "
        f'sed -En "{name}") && test -n "$$made" && '
        f"echo CUDA_MPS_SM_PARTITION={device}/$$made >/run/{_unit_name(spec)}/partition-{number}'"
    )


def _escape(text: str) -> str:
    return text.replace("%", "%%")


def _setting(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'Environment="{_escape(quoted)}"'


def _word(text: str) -> str:
    """One word of a command line of systemd's, which expands ``$`` there and ``%`` everywhere."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_escape(quoted)}"'


_PATH: Final = """\
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin  # of these some set none, or few
export PATH
"""
_HEADS: Final = {
    "slurm": """\
#!/bin/sh
# For Slurm's Prolog=, TaskProlog= and Epilog=, all of them: Prolog and Epilog run as root on the node, before and
# behind a job; TaskProlog, as the job's user, tells each task the daemon's directory. PrologFlags=Alloc has it ready
# in time.
set -u
@PATH@
limited() { timeout -k 5 "$@"; }  # nothing holds the node up for longer
part=${SLURM_SCRIPT_CONTEXT:-$(basename "$0")}
user=${SLURM_JOB_UID:-0}
job=${SLURM_JOB_ID:-}
system=slurm:
noted=
fail() {
    echo "mps: $1" >&2  # Slurm drains the node
    [ -z "$noted" ] || limited 20 rm -f "$noted"
    exit 1
}
""",
    "pbs": """\
#!/bin/sh
# For PBS and Torque as mom_priv/prologue and mom_priv/epilogue, both of them: run as root, before and behind a job.
# Run on a real OpenPBS 23.06; not run on a real Torque.
# The job learns the daemon's directory from its login shell. In /etc/profile.d/mps.sh:
#     case ${PBS_JOBID:-/} in */*) ;; *) [ ! -r "@JOBS@/$PBS_JOBID" ] || . "@JOBS@/$PBS_JOBID" ;; esac
# or, without a login shell, by the hook of “mpstui daemon unit pbs-hook” (OpenPBS).
set -u
@PATH@
# qstat and pbsnodes are where PBS is, which is nowhere on the way that it sets.
pbs=$(sed -n 's/^PBS_EXEC=//p' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)
PATH=$PATH:${pbs:-/opt/pbs}/bin
limited() { timeout -k 5 "$@"; }  # nothing holds the node up for longer
part=$(basename "$0")
user=$(limited 20 id -u "${2:-root}") || exit 1
job=${1:-}
account=${7:-}  # Torque tells it; of OpenPBS the server has to be asked
system=  # whether PBS or Torque is not known here
noted=
fail() {
    echo "mps: $1" >&2
    limited 20 pbsnodes -o "$(uname -n)" -C "$1" 2>/dev/null
    [ -z "$noted" ] || limited 20 rm -f "$noted"
    case $part in prolog*) exit 2 ;; esac  # the job waits for another node; with 1 PBS would delete it
    exit 1
}
""",
}

_BODY: Final = """
# 123, 4711[3].server: it becomes the name of a file.
case $job in .* | *[!]0-9A-Za-z._[-]*) fail "the job's number is none" ;; esac
marks=@JOBS@
me=$(limited 20 id -u) || fail "the user is not known"
control() { printf '%s\\n' "$1" | limited "${2:-20}" nvidia-cuda-mps-control; }

# Whether process $1 is a daemon of this user in this directory. Not by its PID file, which everybody may write to, and
# not by the owner of /proc/$1, which is root for some processes of others; nor is a setuid program that somebody else
# has started by that name.
is_ours() {
    uids=
    while read -r key real effective saved _; do
        [ "$key" != Uid: ] || uids="$real $effective $saved"
    done 2>/dev/null <"/proc/$1/status"
    [ "$uids" = "$me $me $me" ] || return 1
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
        nvidia-cuda-mps*) if is_ours "${process#/proc/}"; then echo "${process#/proc/}"; fi ;;
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

# Jobs of one node may come and go at the same time, and share its daemons: one script at a time looks and acts.
alone() {
    [ -d "$marks" ] || return 0
    true >>"$marks/.lock" || fail "no lock in $marks"
    exec 9>>"$marks/.lock"
    limited 200 flock 9 || fail "the script of another job does not end"
}

# Whether another job that has MPS is on the node.
others() {
    for other in "$marks"/*; do
        [ ! -f "$other" ] || [ "$other" = "$marks/$job" ] || return 0
    done
    return 1
}

start() {
    shared=
    if others && [ -n "$(ours)" ]; then
        shared=1  # another job has started it, and set its limits
        answers
        return 0
    fi
    for folder in "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"; do
        [ -d "$folder" ] || limited 20 install -d -m 0755 "$folder" || fail "no directory $folder"
        # Whoever has made it before, in /tmp, could take the daemon's place.
        own=$(limited 20 find "$folder" -prune -type d -user "$me" ! -perm -020 ! -perm -002)
        [ -n "$own" ] || fail "$folder is a link, or not this user's alone to write to"
        left=$(limited 20 find "$folder" @LEFT@ ! -user 0 ! -user "$me") || fail "no look into $folder"
        [ -z "$left" ] || fail "others have left in $folder what the daemon opens: $(echo "$left" | tr '\\n' ' ')"
        real=$(limited 20 readlink -f "$folder") || fail "no way to $folder"
        if steered "$folder" || steered "$real"; then fail "others can exchange what is above $folder"; fi
    done
    if command -v nvidia-smi >/dev/null 2>&1; then limited 60 nvidia-smi -L >/dev/null || fail "nvidia-smi fails"; fi
    for gpu in $gpus; do
        limited 60 nvidia-smi -i "$gpu" -c EXCLUSIVE_PROCESS >/dev/null || fail "no exclusive mode on $gpu"
    done
    if [ -n "$cpus" ]; then set -- taskset -c "$cpus" "$@"; fi
    limited 60 "$@" 9>&- || fail "the daemon did not start"  # it would keep the lock
    answers
}

answers() {
    tries=0
    # Its answer is never empty; with others, status 0 and no word can mean that the command was refused.
    until [ -n "$(control get_default_active_thread_percentage 2 2>/dev/null)" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || fail "the daemon does not answer"
        sleep 0.1
    done
}

# A command that meets somebody else's session is refused, not always in words. What a try has said is of interest where
# no other one goes through.
set_limit() {
    [ -z "$shared" ] || return 0
    tries=0
    until said=$(control "$1" 2>&1) && [ "$(control "$2" 2>/dev/null)" = "$3" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 5 ] || fail "not in force: $1${said:+: $said}"
        sleep 0.5
    done
}

server() {
    tries=0
    until said=$(control "start_server -uid $1" 2>&1); do
        tries=$((tries + 1))
        [ "$tries" -lt 5 ] || fail "no server for the job's user${said:+: $said}"
        sleep 0.5
    done
}

# Notes that the job has MPS, and what its login shell is to set; in a directory of root's alone.
mark() {
    [ -n "$job" ] || return 0
    [ -d "$marks" ] || limited 20 install -d -m 0755 "$marks" || fail "no directory $marks"
    own=$(limited 20 find "$marks" -prune -type d -user "$me" ! -perm -020 ! -perm -002)
    [ -n "$own" ] || fail "$marks is a link, or not this user's alone to write to"
    noted=$marks/$job
    printf '%s\n' "$1" >"$noted" && limited 20 chmod 0644 "$noted" || fail "the job cannot be noted in $marks"
}

marked() { [ -n "$job" ] && [ -f "$marks/$job" ] && [ ! -L "$marks/$job" ]; }

# Whether one of the words of $1, with commas, blanks or colons between, is $2.
has_word() {
    case ",$(printf '%s' "$1" | limited 5 tr '[:upper:] :\n' '[:lower:],,,')," in
    *",$2,"*) return 0 ;;
    esac
    return 1
}

# Clients of the job that are left end, as a rule without harm to others, where mpstui is there to do it.
end_clients() {
    if [ -n "$job" ] && command -v mpstui >/dev/null 2>&1; then
        limited 120 mpstui terminate --job "$system$job" --kill --yes --pipe-dir "$CUDA_MPS_PIPE_DIRECTORY" \
            >/dev/null 2>&1
    fi
    return 0
}

stop() {
    if others; then return 0; fi  # it goes with the last of them
    control 'quit -t @QUIT@' @DEADLINE@ >/dev/null 2>&1
    # A daemon that is left, and whatever still computes, keeps the next job from the GPU. It answers a moment before
    # it ends; and it has not been told where somebody else's session was in the way.
    tries=0
    while daemon=$(ours) && [ -n "$daemon" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || fail "the daemon did not end: process $(echo "$daemon" | tr '\\n' ' ')"
        sleep 0.1
        [ $((tries % 10)) -ne 0 ] || control 'quit -t @QUIT@' @DEADLINE@ >/dev/null 2>&1
    done
    for gpu in $gpus; do
        left=$(limited 60 nvidia-smi -i "$gpu" --query-compute-apps=pid --format=csv,noheader) ||
            fail "nvidia-smi fails on $gpu"
        [ -z "$left" ] || fail "processes are left on $gpu: $(echo "$left" | tr '\\n' ' ')"
        limited 60 nvidia-smi -i "$gpu" -c DEFAULT >/dev/null
    done
}
"""


_ASKED: Final = {
    "comment": 'has_word "${SLURM_JOB_COMMENT:-}" @WORD@',
    "constraint": 'has_word "${SLURM_JOB_CONSTRAINTS:-}" @WORD@',
    "partition": 'has_word "${SLURM_JOB_PARTITION:-}" @WORD@',
    "account": 'has_word "${SLURM_JOB_ACCOUNT:-}" @WORD@',
    # Slurm tells a prologue neither of the two.
    "licence": 'has_word "$(told_by_scontrol | limited 5 sed -n "s/^Licenses=//p")" @WORD@',
    "gres": 'has_word "$(told_by_scontrol | limited 5 sed -n "/^TresPer/s|[=/]|,|gp")" @WORD@',
}
_SCONTROL: Final = """\
told_by_scontrol() { limited 20 scontrol -o show job "$job" | limited 5 tr ' ' '\\n'; }

"""
_ASKED_PBS: Final = """\
[ -n "$account" ] || account=$(limited 20 qstat -f "$job" 2>/dev/null | limited 5 sed -n 's/^ *Account_Name = //p')
    has_word "$account" @WORD@"""


def _script(kind: UnitKind, specs: Sequence[DaemonSpec], opt_in: str | None) -> str:
    asked = _asked_for(kind, opt_in)
    body = _BODY.replace("@LEFT@", _LEFT).replace("@QUIT@", str(QUIT_AFTER)).replace("@DEADLINE@", str(QUIT_AFTER + 20))
    head = _HEADS[kind].replace("@PATH@\n", _PATH)
    if asked is None:
        head = "".join(line for line in head.splitlines(keepends=True) if not line.startswith("account="))
    if all(spec.multi_user for spec in specs):  # then no server is started for the job's user
        head = "".join(line for line in head.splitlines(keepends=True) if not line.startswith("user="))
    scontrol = _SCONTROL if asked is not None and asked[0] in {"licence", "gres"} else ""
    lines = [head.rstrip("\n"), body.lstrip("\n"), f"{scontrol}asked_for() {{"]
    if asked is None:
        lines.append(
            "    return 0  # every job has MPS; --opt-in of “mpstui daemon unit” has those that ask for it alone"
        )
    else:
        test = _ASKED_PBS if kind == "pbs" else _ASKED[asked[0]]
        lines.append(f"    {test.replace('@WORD@', shlex.quote(asked[1]))}")
    lines += ["}", "", 'case "$part" in']
    if kind == "slurm":
        lines.append("prolog_task | taskprolog* | task[_-]prolog*)  # what is printed here is the task's environment")
        lines.append("    marked || exit 0")
        lines += _told_to_tasks(specs)
        lines += ["    ;;"]
    lines += ["prolog*)", "    asked_for || exit 0", f"    mark {shlex.quote(_for_shells(specs))}", "    alone"]
    for spec in specs:
        lines.append(_environment(spec))
        lines.append(f"    start nvidia-cuda-mps-control {' '.join(('-d', *spec.options))}")
        lines += [
            f"    set_limit {shlex.quote(command)} {shlex.quote(read)} {shlex.quote(wanted)}"
            for command, read, wanted in _commands(spec)
        ]
        if not spec.multi_user:
            lines.append('    server "$user"')
    lines += ["    ;;", "epilog*)"]
    if asked is not None:
        lines.append("    marked || exit 0  # the job had none")
    for spec in specs:
        lines += [_environment(spec), "    end_clients"]
    lines += ["    alone", '    if marked; then limited 20 rm -f "$marks/$job"; fi']
    for spec in specs:
        lines += [_environment(spec), "    stop"]
    lines += ["    ;;", "*)", '    fail "is this the prologue or the epilogue? $part says neither"', "    ;;", "esac"]
    return ("\n".join(lines) + "\n").replace("@JOBS@", JOBS)


def _told(spec: DaemonSpec) -> dict[str, str]:
    """What a client has to know. A daemon that has some of the GPUs counts them anew, and a client's numbers are
    counted in those: so they are named by UUID."""
    devices = {"CUDA_VISIBLE_DEVICES": ",".join(spec.devices)} if spec.devices else {}
    return {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(spec.pipe_dir), **devices}


def _told_to_tasks(specs: Sequence[DaemonSpec]) -> list[str]:
    """Of several daemons each task gets one, by its number on the node."""
    lines = [f"    case $((${{SLURM_LOCALID:-0}} % {len(specs)})) in"]
    for number, spec in enumerate(specs):
        lines.append(f"    {number})")
        lines += [
            f"        printf '%s\\n' {shlex.quote(f'export {name}={value}')}" for name, value in _told(spec).items()
        ]
        lines.append("        ;;")
    return [*lines, "    esac"]


def _for_shells(specs: Sequence[DaemonSpec]) -> str:
    """Of several daemons a job's shell learns the first."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in _told(specs[0]).items())


_PBS_HOOK: Final = """\
# For OpenPBS: tells each process of a job that has MPS the daemon's directory. The script of “mpstui daemon unit pbs”
# starts the daemon and notes the job. As root:
#     qmgr -c "create hook mps event=execjob_launch"
#     qmgr -c "import hook mps application/x-python default FILE"
import os
import re

import pbs

TOLD = @TOLD@


def told(jobs="@JOBS@"):
    event = pbs.event()
    job = event.job.id
    if not re.match(r"[0-9][0-9A-Za-z._\\[\\]-]*$", job):
        return
    note = os.path.join(jobs, job)
    if os.path.isfile(note) and not os.path.islink(note):
        for name, value in TOLD.items():
            event.env[name] = value


told()
"""


def _pbs_hook(specs: Sequence[DaemonSpec]) -> str:
    return _PBS_HOOK.replace("@TOLD@", repr(_told(specs[0]))).replace("@JOBS@", JOBS)


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
