"""The panels of the overview: devices, limits, servers, clients, events."""

from mpstui.ui.panels.clients import ClientsPanel
from mpstui.ui.panels.devices import DevicesPanel
from mpstui.ui.panels.events import EventsPanel
from mpstui.ui.panels.limits import LimitsPanel
from mpstui.ui.panels.servers import ServersPanel

__all__ = ["ClientsPanel", "DevicesPanel", "EventsPanel", "LimitsPanel", "ServersPanel"]
