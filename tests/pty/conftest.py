"""The simulated node that the tests in a real terminal watch; none of them changes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from program import Node, simulated_node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with simulated_node() as node:
        yield node
