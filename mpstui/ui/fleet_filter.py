"""The filter of many nodes, on their screen and behind ``fleet --filter``."""

from __future__ import annotations

import time
from typing import Final

from mpstui.core.model import Snapshot
from mpstui.fields import View
from mpstui.fleet import NODE, FleetNode, words_in
from mpstui.ui.filter import Filter

NODE_TERMS: Final = (
    ("gpu-07", "nodes with this text in their name, state, reason, daemons or problems"),
    ("state:fault", "nodes with this text in that field"),
    ("state=ok  state!=ok", "nodes where the field is exactly this, or is not"),
    ("clients>10  pending>=1", "nodes with more, or less: memory_used<4G, silent_since>1h"),
    ("!gpu-07  !state:ok", "nodes without it"),
    ("state:held gpu", "several: nodes with all of them"),
    ("fields", ", ".join(sorted(each.word or each.id for each in NODE.fields if each.of is None))),
)
"""What may be typed for nodes, and what it leaves."""


class NodeFilter(Filter[FleetNode]):
    """The same language as that of the clients: words are looked for in what is told of a node."""

    def __init__(self, text: str = "") -> None:
        super().__init__(NODE, text)

    def leaves(self, node: FleetNode) -> bool:
        """Whether it is shown."""
        return self.matches(node, View(snapshot=Snapshot(time.time())), words_in(node))
