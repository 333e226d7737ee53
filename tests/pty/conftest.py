"""The simulated node that the tests in a real terminal watch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from program import Node, simulated_node


@pytest.fixture
def node() -> Iterator[Node]:
    with simulated_node() as node:
        yield node
