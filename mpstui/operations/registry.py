"""The registry of actions: the one place that says what mpstui can change, under which key and how dangerous it is."""

from __future__ import annotations

from mpstui.operations.types import Action, ActionId, Argument, Danger

_SCOPE = Argument("scope", "scope", "For", "the default for servers to come, or one server")
_DEVICE = Argument("device", "device", "Device", "an ordinal of the daemon or a UUID")
_CLIENTS = Argument("clients", "clients", "Clients")

ACTIONS: tuple[Action, ...] = (
    Action(
        "terminate_client",
        "Terminate",
        "t",
        Danger.HARM,
        "End the GPU work of the chosen clients; their processes live on and get error 810",
        (_CLIENTS,),
    ),
    Action(
        "terminate_and_kill",
        "Terminate + kill",
        "K",
        Danger.HARM,
        "End the GPU work of the chosen clients, then their processes: SIGTERM, grace, SIGKILL",
        (_CLIENTS,),
    ),
    Action(
        "end_lost_clients",
        "End lost clients",
        "e",
        Danger.HARM,
        "End the processes that a fatal fault has hit: SIGTERM, grace, SIGKILL; their GPU work is lost already",
        (_CLIENTS,),
        finds_clients=True,
    ),
    Action(
        "unblock",
        "Unblock",
        "u",
        Danger.HARM,
        "End the process that keeps the daemon from answering: a client terminated twice, or an open session",
        (_CLIENTS,),
        finds_clients=True,
    ),
    Action(
        "set_active_thread_percentage",
        "Threads",
        "l",
        Danger.CHANGE,
        "Set the active thread percentage: the share of the SMs that a new client may use",
        (_SCOPE, Argument("value", "percentage", "Percentage", "more than 0, at most 100")),
    ),
    Action(
        "set_pinned_mem_limit",
        "Memory",
        "m",
        Danger.CHANGE,
        "Set the pinned device memory limit of new clients on one device",
        (_SCOPE, _DEVICE, Argument("value", "memory", "Limit", "900M, 10G or none")),
    ),
    Action(
        "set_client_priority",
        "Priority",
        "o",
        Danger.CHANGE,
        "Set the priority of new clients: 0 normal, 1 below normal",
        (Argument("value", "priority", "Priority", "0 normal, 1 below normal"),),
    ),
    Action(
        "start_server",
        "Start server",
        "S",
        Danger.CHANGE,
        "Start an MPS server for a user, so that the first client need not wait for it",
        (Argument("value", "uid", "User", "a user name or a number"),),
    ),
)


def action(action_id: ActionId) -> Action:
    """The registered action of that id."""
    return next(a for a in ACTIONS if a.id == action_id)
