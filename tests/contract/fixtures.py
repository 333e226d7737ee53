"""Fixtures for tests on a node, simulated or real; import ``node`` and ``control`` into a conftest to use them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.commands import Commands
from contract.harness import Node, chosen, control_of, open_node


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str | None:
    """The simulated driver; None for the usual one, and where the node is not simulated."""
    return getattr(request, "param", None)


@pytest.fixture
async def node(driver: str | None, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    """A daemon of its own for each test, in a directory that other users may enter and whose path is short."""
    if chosen() == "control":
        from contract.control_node import binary_there

        if binary_there() is None:
            pytest.skip("needs MPSTUI_REAL_CONTROL, the path of a control binary")
        marked = {
            name for name in ("every_driver", "no_server", "ready_server") if request.node.get_closest_marker(name)
        }
        if "ready_server" in marked:
            pytest.skip("needs a server that gets ready, and so a GPU")
        if not marked:
            pytest.skip("needs clients, and so a GPU")
    if chosen() == "real":
        from contract.real_node import missing

        reason = missing()
        if reason is not None:
            pytest.skip(reason)
    directory = tempfile.mkdtemp(prefix="mpstui-", dir="/tmp")
    os.chmod(directory, 0o755)
    try:
        node = await open_node(Path(directory), driver=driver)
        try:
            yield node
        finally:
            await node.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def control(node: Node) -> Commands:
    """The commands of the node's daemon."""
    return control_of(node)
