"""Where a client's limits come from, as rows of its details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mpstui.core.model import Client, Daemon, Snapshot
from mpstui.plan.chain import Limit, limit_chains
from mpstui.plan.variables import variables_of
from mpstui.ui.dialogs.widgets import DetailRow, Heading

_NAMES: Final[dict[Limit, str]] = {
    "active_thread_percentage": "threads",
    "sm_count": "SMs",
    "pinned_mem_limit": "memory limit",
    "client_priority": "priority",
}


def chain_rows(
    snapshot: Snapshot, daemon: Daemon, client: Client, environment: Mapping[str, str] | None
) -> list[DetailRow | Heading]:
    """Each limit in force, and below it everything that has a say, the earliest first. ``—`` is not known."""
    events = [event for event in snapshot.events if event.pipe_dir in {None, daemon.pipe_dir}]
    rule = "of memory limits the lower one wins" if daemon.named_servers else "the lower one wins"
    rows: list[DetailRow | Heading] = [DetailRow(), Heading(f"Where its limits come from; {rule}")]
    for chain in limit_chains(client, daemon, events, environment, snapshot.devices):
        rows.append(DetailRow(_NAMES[chain.limit], chain.effective, "bold"))
        width = max(len(link.value) for link in chain.links) + 2
        rows += [DetailRow("", f"{link.value:<{width}}{link.label}") for link in chain.links]
    return rows + _variable_rows(daemon, client, environment)


def _variable_rows(daemon: Daemon, client: Client, environment: Mapping[str, str] | None) -> list[DetailRow | Heading]:
    """The variables of MPS that it was started with, and what each of them does, or why it does nothing."""
    if environment is None:
        return []
    told, more = variables_of(environment, daemon, client.active_thread_percentage)
    rows: list[DetailRow | Heading] = [DetailRow(), Heading("Variables that it was started with")]
    for each in told:
        rows.append(DetailRow("", f"{each.name}={each.value}"))
        if each.does:
            rows.append(DetailRow("", f"  {each.does}"))
        if each.trouble:
            rows.append(DetailRow("", f"  {each.trouble}. {each.remedy}", "$text-warning"))
    rows += [DetailRow("", f"and {more} more")] if more else []
    return rows if told else [*rows, DetailRow("", "none of MPS")]
