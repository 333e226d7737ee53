"""What mpstui costs a node with many clients, at rest or with clients that come and go, and whether it grows.

    python benchmarks/growth.py --daemons 16 --minutes 10            # 46 clients each, at rest
    python benchmarks/growth.py --daemons 1 --churn 1 --minutes 130  # a client each second comes and ends

A line each minute: seconds since the start, CPU of the minute in percent of one core, RSS in MiB.
``--profile FILE`` runs the screen under cProfile instead, whose own cost is then in the numbers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE / "tests" / "pty")]

from terminal import Terminal  # noqa: E402

from mpstui.sim.client import SimClient  # noqa: E402
from mpstui.sim.node import SimNode  # noqa: E402

_TICK = os.sysconf("SC_CLK_TCK")
_SETTLE = 20.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children that it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def rss(pid: int) -> float:
    """MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Rss")).split()[1]) / 1024


class Churn:
    """One client comes, and the one that came before it ends, each ``period`` seconds."""

    def __init__(self, node: SimNode, period: float) -> None:
        self.node, self.period, self.due = node, period, time.monotonic()
        self.guests: list[SimClient] = []

    def step(self) -> None:
        if self.period and time.monotonic() >= self.due:
            self.due += self.period
            if len(self.guests) > 2:
                self.guests.pop(0).tell("exit")
            self.guests.append(self.node.spawn("idle", wait=False, command="python guest.py", user="guest", uid=2009))
            self.node.reap()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--daemons", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--churn", type=float, default=0.0, metavar="SECONDS", help="a client comes and one ends")
    parser.add_argument("--keys", default="", help="pressed before it begins, e.g. f5,j,enter: groups by user")
    parser.add_argument("--profile", metavar="FILE", help="cProfile's statistics of the screen")
    options = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="growth-")))
        dirs = [place / str(number) for number in range(options.daemons)]
        for each in dirs:
            stack.enter_context(SimNode.start(each, scenario="crowd"))
        guest = stack.enter_context(SimNode.start(place / "guests", multiuser=True)) if options.churn else None
        if guest is not None:
            dirs.insert(0, place / "guests")
        named = [word for each in dirs for word in ("--pipe-dir", os.fspath(each))]
        profile = ["-m", "cProfile", "-o", options.profile] if options.profile else []
        paths = [os.fspath(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        terminal = stack.enter_context(
            Terminal(
                [sys.executable, *profile, "-m", "mpstui", *named],
                environment={"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": ""},
                record=False,
            )
        )
        churn = Churn(guest, options.churn) if guest is not None else None
        terminal.wait_for(lambda t: "COMMAND" in t.text)

        def go_on(seconds: float) -> None:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if churn is not None:
                    churn.step()
                terminal.read(min(0.05, left))

        for name in filter(None, options.keys.split(",")):
            terminal.key(name)
            go_on(1.0)
        go_on(_SETTLE)
        start, pid = time.monotonic(), terminal.process.pid
        while time.monotonic() - start < options.minutes * 60:
            before, at = cpu_seconds(pid), time.monotonic()
            go_on(60.0)
            share = 100 * (cpu_seconds(pid) - before) / (time.monotonic() - at)
            print(f"{time.monotonic() - start:7.0f} s {share:6.2f} % CPU {rss(pid):7.1f} MiB", flush=True)
        terminal.key("q")
        terminal.wait_for(lambda t: t.process.poll() is not None)


if __name__ == "__main__":
    main()
