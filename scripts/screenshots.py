"""Makes the pictures in screenshots/: runs mpstui in a pseudo-terminal, works its keys, draws what it shows.

    scripts/screenshots.py                                     simulated nodes, SVG and PNG into screenshots/
    scripts/screenshots.py --pipe-dir DIR --prefix real-       the daemon that serves DIR; nothing is changed there

PNG needs CairoSVG (the `screenshots` extra) and the font DejaVu Sans Mono (Debian and Ubuntu: fonts-dejavu-core).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent / "gpu"))
from drive import Screen
from program import simulated_node
from screen_svg import screen_svg
from terminal import Timeout, until

ROOT = Path(__file__).resolve().parents[1]
FONT = "DejaVu Sans Mono"


class Album:
    """Draws screens into a folder."""

    def __init__(self, out: Path, prefix: str, png: bool) -> None:
        self.out, self.prefix, self.png = out, prefix, png
        self.made: list[str] = []
        out.mkdir(parents=True, exist_ok=True)

    def take(self, screen: Screen, name: str) -> None:
        """A picture of what is on the screen now."""
        screen.wait_quiet()
        path = self.out / f"{self.prefix}{name}.svg"
        path.write_text(screen_svg(screen.screen, f"mpstui: {name}"))
        if self.png:
            import cairosvg

            cairosvg.svg2png(url=str(path), write_to=str(path.with_suffix(".png")), scale=4 / 3)
        self.made.append(path.name)
        print(path, flush=True)


def tour(album: Album, pipe_dir: Path, pids: list[int]) -> None:
    """Overview, details, dialogs and help on one node. Every dialog is left with Escape: nothing is changed."""
    with Screen(pipe_dir) as screen:
        screen.wait_clients(pids[:1])
        screen.read_for(2.5)  # for meters that need two readings
        album.take(screen, "overview")
        for name, key, text in (
            ("details", "enter", str(pids[0])),
            ("form", "l", "Nothing is sent before Apply"),
            ("memory", "m", "Nothing is sent before Apply"),
            ("confirm", "t", "Cancel"),
            ("help", "?", "Help"),
            ("palette", "ctrl+p", "Search"),
        ):
            if name == "details":
                screen.key("g")
                screen.wait_quiet()
            screen.key(key)
            try:
                screen.wait_for(text, 5)
            except Timeout as error:
                print(f"{name}: {error}", file=sys.stderr)
            if name in ("form", "memory"):
                screen.send("50" if name == "form" else "10G")
            album.take(screen, name)
            screen.key("escape")
            screen.wait_quiet()
        screen.leave()
    with Screen(pipe_dir, columns=80, lines=24) as screen:
        screen.wait_clients(pids[:1])
        screen.read_for(2.5)
        album.take(screen, "overview-80x24")


SIDE = {"events": "E", "problems": "D", "blast": "b", "plan": "p", "load": "L", "daemons": "d"}
"""The other screens, by the keys that open them from the overview."""


def sides(album: Album, pipe_dir: Path, pids: list[int], keys: Mapping[str, str] = SIDE) -> None:
    """Each of the other screens. Nothing is changed."""
    for name, key in keys.items():
        with Screen(pipe_dir) as screen:
            screen.wait_clients(pids[:1])
            screen.read_for(2.5)
            before = screen.text
            screen.key(key)
            until(
                lambda screen=screen, before=before: screen.read_for(0.2) or screen.text[:120] != before[:120], 10, name
            )
            screen.read_for(2.0)
            album.take(screen, name)


def partitions(album: Album) -> None:
    """Of a daemon that was started with -S."""
    from mpstui.sim import SimNode

    folder = tempfile.TemporaryDirectory(prefix="mps_", ignore_cleanup_errors=True)
    with folder, SimNode.start(Path(folder.name), scenario="static") as node:
        pids = [
            int(pid) for pid in node.control(f"get_client_list {node.control('get_server_list').split()[0]}").split()
        ]
        sides(album, node.pipe_dir, pids, {"partitions": "P"})


def themes(album: Album, pipe_dir: Path, pids: list[int]) -> None:
    """The overview in each theme of the package."""
    for path in sorted((ROOT / "themes").glob("*.toml")):
        with Screen(pipe_dir, "--theme", path.stem) as screen:
            screen.wait_clients(pids[:1])
            screen.read_for(2.5)
            album.take(screen, f"theme-{path.stem}")


def states(album: Album) -> None:
    """A server in FAULT, a daemon that is held, one that is blocked, one that is gone: each on a node of its own."""
    from mpstui.sim import SimNode, control_binary

    @contextlib.contextmanager
    def node() -> Iterator[SimNode]:
        folder = tempfile.TemporaryDirectory(prefix="mps_", ignore_cleanup_errors=True)
        with folder, SimNode.start(Path(folder.name)) as started:
            yield started

    def environment(started: SimNode) -> dict[str, str]:
        return {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(started.pipe_dir)}

    with node() as faulty:
        victim, other = faulty.spawn("faulting"), faulty.spawn("busy")
        with Screen(faulty.pipe_dir) as screen:
            screen.wait_clients([victim.pid, other.pid])
            victim.tell("fault")
            screen.wait_for("FAULT", 10)
            album.take(screen, "fault")
    with node() as held:
        held.spawn("busy")
        holder = subprocess.Popen(control_binary(), stdin=subprocess.PIPE, env=environment(held))
        with holder, Screen(held.pipe_dir) as screen:
            screen.wait_for(str(holder.pid), 15)
            album.take(screen, "held")
    with node() as blocked:
        client = blocked.spawn("endless")
        server = blocked.control("get_server_list").strip()
        command = f"terminate_client {server} {client.pid}\n".encode()
        blocked.control(command.decode())
        with subprocess.Popen(control_binary(), stdin=subprocess.PIPE, env=environment(blocked)) as second:
            assert second.stdin is not None
            second.stdin.write(command)
            second.stdin.close()
            with Screen(blocked.pipe_dir) as screen:
                screen.wait_for("BLOCKED", 20)
                album.take(screen, "blocked")
            second.kill()
    with node() as gone:
        gone.spawn("busy")
        gone.kill_daemon()
        until(lambda: gone.daemon_pid is None, 5, "the daemon is gone")
        with Screen(gone.pipe_dir) as screen:
            screen.wait_for("STALE", 15)
            album.take(screen, "stale")


def main() -> int:
    """All the pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the screen.")
    parser.add_argument("--pipe-dir", type=Path, help="a running daemon, instead of simulated nodes")
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--prefix", default="", help="put before each name, e.g. real-")
    parser.add_argument("--svg-only", action="store_true")
    parser.add_argument("--sides", action="store_true", help="the other screens alone, of a simulated node")
    options = parser.parse_args()
    if not options.svg_only and FONT not in _fonts():
        print(f"the font {FONT} is not installed: symbols in the PNG files may be missing", file=sys.stderr)
    album = Album(options.out, options.prefix, not options.svg_only)
    if options.pipe_dir:
        from program import Node

        tour(album, options.pipe_dir, Node(options.pipe_dir).client_pids())
        return 0
    with simulated_node() as node:
        pids = node.client_pids()
        if options.sides:
            sides(album, node.pipe_dir, pids)
            partitions(album)
            return 0
        tour(album, node.pipe_dir, pids)
        themes(album, node.pipe_dir, pids)
        sides(album, node.pipe_dir, pids)
    partitions(album)
    states(album)
    return 0


def _fonts() -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(["fc-list"], capture_output=True, text=True, check=False).stdout
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
