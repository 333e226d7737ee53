"""What a single command costs from exec to exit, beside Python that does nothing and the shell's own one-shot.

    python benchmarks/start.py                                      # a simulated node, made for this
    python benchmarks/start.py --pipe-dir /tmp/mps_0 --binary nvidia-cuda-mps-control     # a real one

Sets the daemon's default percentage to 100. The commands take turns, ``--times`` times each, so that what else the
machine does hits each alike. Medians of the clock and of user and system time (of the command and of what it starts),
in seconds; ``over`` is the clock beside bare Python.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, os.fspath(HERE))

from mpstui.sim.node import SimNode  # noqa: E402


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of the clock and of processor time. Raises RuntimeError where the command fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {process.returncode}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--pipe-dir", type=Path, help="a daemon that runs; otherwise a simulated node")
    parser.add_argument("--binary", help="the control binary, for the shell's own one-shot")
    options = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="start-")))
        pipe_dir = options.pipe_dir or place / "node"
        if options.pipe_dir is None:
            stack.enter_context(SimNode.start(pipe_dir, scenario="demo"))
        mpstui = [sys.executable, "-m", "mpstui"]
        at = ["--pipe-dir", os.fspath(pipe_dir)]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "mpstui status --health": [*mpstui, "status", "--health", *at],
            "mpstui status --json": [*mpstui, "status", "--json", *at],
            "mpstui set … --default": [*mpstui, "set", "active-thread-percentage", "100", "--default", *at],
        }
        if options.binary:
            ask = f"echo get_default_active_thread_percentage | {shlex.quote(options.binary)}"
            commands["echo … | control binary"] = ["sh", "-c", ask]
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": os.pathsep.join([os.fspath(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "CUDA_MPS_PIPE_DIRECTORY": os.fspath(pipe_dir),
            "MPSTUI_AUDIT_LOG": os.fspath(place / "audit.log"),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(options.times + 1):
            for name, command in commands.items():
                seconds = run(command, environment)
                if number:  # the first of each writes what Python compiles
                    taken[name].append(seconds)
        bare = statistics.median(clock for clock, _ in taken["python -c pass"])
        print(f"{options.times} times each by turns; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for name, each in taken.items():
            clock = statistics.median(seconds for seconds, _ in each)
            cpu = statistics.median(seconds for _, seconds in each)
            least = min(seconds for _, seconds in each)
            print(f"{name:24} {clock:6.3f} s, over {clock - bare:6.3f} s; CPU {cpu:6.3f} s, at least {least:6.3f} s")


if __name__ == "__main__":
    main()
