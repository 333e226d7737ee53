"""Which node is shown: the real one, or a simulated one that was named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.node import UnusableNode, open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.sim.node import SimNode


async def test_somebody_elses_demo_is_not_taken_for_this_nodes_daemon(node: SimNode) -> None:
    sources, dirs = open_node((), {"PATH": ""})
    assert not sources.simulated
    collector = NodeWatcher(dirs, sources)
    try:
        snapshot = await collector.once()
    finally:
        await collector.stop()
    assert node.pipe_dir not in {daemon.pipe_dir for daemon in snapshot.daemons}


def test_a_simulated_node_is_named_by_option_or_environment(node: SimNode) -> None:
    for found in (open_node([node.pipe_dir], {}), open_node((), {"CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)})):
        sources, dirs = found
        assert sources.simulated
        assert dirs == (node.pipe_dir,)


def test_real_and_simulated_are_not_mixed(node: SimNode, tmp_path: Path) -> None:
    with pytest.raises(UnusableNode):
        open_node([node.pipe_dir, tmp_path], {})
