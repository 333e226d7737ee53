"""A simulated nvidia-cuda-mps-server: its clients and limits, and what a fault does to them; logs as the real one."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mpstui.control.drivers import Driver

from .clients import ClientProcess, SimContext, context_memory, parse_percentage, sm_share
from .config import Gpu, context_limit, ordinal
from .logs import Logs
from .memlimit import environment_limits
from .process import die_with_parent, rename

ILLEGAL_ADDRESS: Final = 700
LAUNCH_FAILURE: Final = 719
DEVICES_UNAVAILABLE: Final = 46
SERVER_NOT_READY: Final = 807
CLIENT_TERMINATED: Final = 810
OUT_OF_MEMORY: Final = 2
NO_CONTEXT: Final = 201


class Begin(NamedTuple):
    """What a server begins with."""

    pipe_dir: str
    uid: int
    gpus: Sequence[Gpu]
    logs: Logs
    percentage: float
    priority: int
    start: float | str
    """The seconds that it takes to be ready, or why it never is."""
    driver: Driver


def start_process(begin: Begin) -> tuple[int, socket.socket]:
    """Forks the server's process. Gives its PID and a socket that closes when it ends, and at which it ends; unless
    ``begin.start`` is 0, a byte on it tells that the server is ready.
    """
    ours, theirs = socket.socketpair()
    told, tells = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            if begin.driver.number >= 550:  # the line carries the PID of its writer
                begin.logs.control(f"Starting new server {os.getpid()} for user {begin.uid}")
            os.close(told)
            os.close(tells)
            _server_process(theirs, parent, begin)
        finally:
            os._exit(1)
    theirs.close()
    os.close(tells)
    if begin.driver.number < 550:
        begin.logs.control(f"Starting new server {pid} for user {begin.uid}")
    os.read(told, 1)  # until the line is there: on a busy machine an answer would come before it
    os.close(told)
    if begin.start == 0:
        ours.settimeout(5)
        ours.recv(1)
    ours.setblocking(False)
    return pid, ours


def _server_process(daemon: socket.socket, parent: int, begin: Begin) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    die_with_parent(parent)
    rename([b"nvidia-cuda-mps-server"])
    pid, logs, start, driver = os.getpid(), begin.logs, begin.start, begin.driver
    logs.server(pid, "Startup", "Other")
    logs.server(pid, f"Connecting to control daemon on socket: {begin.pipe_dir}/control", "Other")
    logs.server(pid, "Initializing server process", "Other")
    if isinstance(start, str):
        logs.server(pid, f"Failed to start : {start}", "Other")
        os._exit(1)
    if start and select.select([daemon], [], [], start)[0]:
        os._exit(0)  # told to end before it was ready
    for device, gpu in enumerate(begin.gpus):
        logs.server(pid, f"Creating server context on device {device} ({gpu.name})")
    logs.server(pid, f"Created anonymous shared memory region mps.shm.{begin.uid}.{pid}")
    if driver.binary_version is not None:
        logs.server(pid, f"CUDA MPS Server for Linux/Unix. Binary version: {driver.binary_version}")
    logs.server(pid, f"Display Driver version: {driver.number}")
    logs.server(pid, f"Active Threads Percentage set to {begin.percentage:.1f}")
    logs.server(pid, f"Server Priority set to {begin.priority}")
    logs.server(pid, "Server has started")
    # Whatever it inherited must close with the daemon, not with this process.
    mine = daemon.detach()
    os.dup2(mine, 3)
    os.closerange(4, 4096)
    os.write(3, b"R")
    while os.read(3, 1):
        pass
    os._exit(0)


class SimXid(NamedTuple):
    """What the driver says of a fault: NVML as an event, the kernel as a line of its log (facts 37 and 38)."""

    time: float
    uuid: str
    number: int
    line: str

    @staticmethod
    def of(gpu: Gpu, server_pid: int, named: ClientProcess | None) -> SimXid:
        """31 with the client that the kernel names; 43 with the server where there is none."""
        text = f"NVRM: Xid (PCI:0000:{6 + gpu.index:02x}:00): "
        if named is None:
            return SimXid(
                time.time(), gpu.uuid, 43, f"{text}43, pid={server_pid}, name=nvidia-cuda-mps, channel 0x0000000a"
            )
        name = os.fsdecode(os.path.basename(named.argv0[:64]))[:15] or "client"
        what = "MMU Fault: ENGINE GRAPHICS GPC3 GPCCLIENT_T1_14 faulted @ 0x0_00000000."
        kind = "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
        line = f"{text}31, pid={named.pid}, name={name}, channel 0x00000010, intr 00000000. {what} {kind}"
        return SimXid(time.time(), gpu.uuid, 31, line)


class SimServer:
    """The books of one server. Percentages are of the device's SMs, limits in bytes by device ordinal."""

    def __init__(
        self,
        pid: int,
        link: socket.socket,
        uid: int,
        gpus: Sequence[Gpu],
        logs: Logs,
        report: Callable[[SimXid], None] = lambda xid: None,
    ) -> None:
        """``report`` takes what the driver would say of a fault."""
        self.pid = pid
        self.link = link
        self.uid = uid
        self.gpus = gpus
        self.percentage = 100.0
        self.pinned: dict[str, int] = {}
        self.priority = 0
        self.terminate_faults = False
        """A client that is terminated in a long kernel takes its busy neighbours along (fact 61)."""
        self.starting = False
        """It is not ready: INITIALIZING, and busy for every command but a few (fact 45)."""
        self.clients: list[ClientProcess] = []
        self.next_try_ms = 200
        """Pause before the next attempt to shut it down; doubles."""
        self.retrying = False
        self.leaving = False
        self.on_process_end: dict[ClientProcess, Callable[[], None]] = {}
        """Whom a second terminate_client waits for (fact 16)."""
        self._logs = logs
        self._numbers = 0
        self._previous: tuple[int, int] = (-1333654781, 0)
        self._affected: set[ClientProcess] = set()
        self._reset: set[int] = set()
        self._turn = 0
        self._report = report

    @property
    def status(self) -> str:
        return "INITIALIZING" if self.starting else "FAULT" if self._affected else "ACTIVE"

    @property
    def workers(self) -> int:
        """Worker threads: one for a client and one for each of its contexts."""
        return sum(1 + len(c.contexts) for c in self.clients)

    def listed(self) -> list[ClientProcess]:
        """Clients in the order of their numbers."""
        return sorted((c for c in self.clients if c.number), key=lambda c: c.number)

    def log(self, text: str | bytes) -> None:
        self._logs.server(self.pid, text)

    def device_key(self, device: str) -> str:
        """The ordinal of a device given by ordinal or UUID."""
        return ordinal(self.gpus, device)

    def count(self, device: int) -> int:
        return sum(x.device == device for c in self.clients for x in c.contexts)

    def connect(self, client: ClientProcess) -> int:
        """Takes a client, without contexts yet; otherwise the CUDA error that refuses it (fact 18)."""
        self.log(f"Received new client request for {self._name(*self._previous)}")
        name = self._name(client.pid, 0)
        if self._affected:
            self.log(f"Server teardown in progress. Refusing to accept new client {name}")
            self.log(f"Failed to accept client {name} with status {SERVER_NOT_READY}")
            return SERVER_NOT_READY
        for device in sorted(self._reset):
            self.log(f"Creating server context on device {device} ({self.gpus[device].name})")
        self._reset.clear()
        client.connected = True
        self.clients.append(client)
        self._greet(client, 0)
        self._limit(client)
        return 0

    def add_context(self, client: ClientProcess, device: int) -> int:
        """Gives a client a context; otherwise the CUDA error that refuses it (fact 13)."""
        self.log(f"Received new client request for {self._name(*self._previous)}")
        if self.count(device) >= (most := context_limit(self.gpus[device])):
            self.log(f"Failed to accept new client. Maximum number of clients ({most}) reached.")
            return DEVICES_UNAVAILABLE
        if not client.number:
            self._numbers += 1
            client.number = self._numbers
        context = SimContext(len(client.contexts) + 1, device)
        client.contexts.append(context)
        gpu = self.gpus[device]
        client.used[device] = client.used.get(device, 0) + context_memory(client.sm_count, gpu)
        self._greet(client, context.id)
        self.log(f"Device {gpu.name} (uuid {gpu.uuid}) is associated")
        self.log(f"Status of client {self._name(client.pid, context.id)} is ACTIVE")
        return 0

    def free_memory(self, client: ClientProcess, device: int) -> int:
        """Bytes that the client may still allocate on a device, by its limits and by what others have taken."""
        key = str(device)
        own_limits = environment_limits(client.limit("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), self.gpus)
        limits = [found.get(key) or None for found in (self.pinned, own_limits)]
        own = client.used.get(device, 0)
        taken = sum(c.used.get(device, 0) for c in self.clients)
        free = self.gpus[device].memory_total - taken
        return max(0, min([free, *(limit - own for limit in limits if limit is not None)]))

    def allocate(self, client: ClientProcess, size: int) -> int:
        """Takes ``size`` bytes on each of its devices; otherwise the CUDA error."""
        for device in dict.fromkeys(client.devices):
            if size > self.free_memory(client, device):
                return OUT_OF_MEMORY
            client.used[device] = client.used.get(device, 0) + size
        return 0

    def drop(self, client: ClientProcess) -> None:
        """The client's process has closed its connection or is gone.

        One in the middle of a kernel, that had not been terminated before, takes its neighbours along with 700; between
        short kernels a kill harmed nobody (facts 17, 33).
        """
        devices = [x.device for x in client.contexts]
        harmful = client.endless and not client.clean and not client.terminated and not client.error
        self.close_contexts(client)
        if harmful:
            neighbour = next((c for c in self._on(devices) if c is not client), None)
            if neighbour is not None:
                self._fault(neighbour, neighbour, ILLEGAL_ADDRESS)
        self.log(f"Server failed to recevie command with status 806, assuming client {self._name(client.pid, 0)} exit")
        self.log(f"Client process {client.pid} disconnected")
        self.clients.remove(client)
        self._affected.discard(client)

    def close_contexts(self, client: ClientProcess) -> None:
        """Ends its contexts, the last one first; the server's own context on a reset device goes with the last."""
        waiting = self.on_process_end.pop(client, None)
        for context in reversed(client.contexts.copy()):
            name = self._name(client.pid, context.id)
            self.log(f"Server failed to recevie command with status 806, assuming client {name} exit")
            if waiting is not None:
                self.log("Client termination succeeded.")
                waiting()
                waiting = None
            client.contexts.remove(context)
            left = self.count(context.device)
            self.log(f"Client {name} exiting. Number of active client contexts is {left}.")
            if not left and context.device in self._reset:
                self.log(f"Destroy server context on device {context.device} ({self.gpus[context.device].name})")
        if waiting is not None:
            waiting()
        client.used.clear()

    def terminate(self, client: ClientProcess, done: Callable[[], None]) -> None:
        """terminate_client. ``done`` comes at once, but for a client that was terminated before only when it ends."""
        for context in client.contexts:
            self.log(f"MPS server requesting client {self._name(client.pid, context.id)} to exit")
        if client.terminated:
            self.on_process_end[client] = done
            return
        client.terminated = True
        endless = client.endless
        client.lose(CLIENT_TERMINATED)
        self.log("Client termination succeeded.")
        done()
        if endless and self.terminate_faults and (busy := self._busy_beside(client)):
            self._fault(busy[0], busy[0], ILLEGAL_ADDRESS)

    def fault(self, client: ClientProcess) -> None:
        """An illegal store of ``client``. Among busy neighbours the log names one of those and never the one that it
        was, and the kernel another one, as mostly seen; among idle ones both name the right one (facts 36, 37)."""
        busy = self._busy_beside(client)
        self._turn += 1
        self._tell_driver(client, busy[(self._turn + 1) % len(busy)] if busy else client)
        self._fault(client, busy[self._turn % len(busy)] if busy else client, ILLEGAL_ADDRESS)

    def trap(self, client: ClientProcess) -> None:
        """``trap;`` in a kernel of ``client``: everybody gets 719, and the log names nobody (fact 37)."""
        self._tell_driver(client, None)
        self._fault(client, None, LAUNCH_FAILURE)

    def _tell_driver(self, client: ClientProcess, named: ClientProcess | None) -> None:
        """What the driver says of a fault of ``client``; ``named`` by the kernel. Of other causes it is not known."""
        if client.contexts:
            self._report(SimXid.of(self.gpus[client.contexts[0].device], self.pid, named))

    def _fault(self, client: ClientProcess, named: ClientProcess | None, others: int) -> None:
        """A fatal GPU error on the devices of ``client``: every client on them and every device of those is torn down.

        ``named`` is whom the log names; ``others`` is the CUDA error of the clients on the first device, those further
        away get 719 (facts 18, 33).
        """
        if named is not None:
            self.log(f"Client {{PID: {named.pid}, Context: 1}} encountered a fatal GPU error.")
        self.log("Server is handling a fatal GPU error.")
        devices = list(dict.fromkeys(x.device for x in client.contexts))
        first = set(devices)
        affected: list[ClientProcess] = []
        for device in devices:  # grows while it is walked
            here = self._on([device])
            for client in here:
                for context in client.contexts:
                    if context.device == device:
                        name = self._name(client.pid, context.id)
                        self.log(f"Client {name} on device {device} to be torn down")
            for client in here:
                if client in affected:
                    continue
                affected.append(client)
                self.log(f"All clients belonging to error trigging process {client.pid} will be torn down")
                for context in client.contexts:
                    name = self._name(client.pid, context.id)
                    self.log(f"Client {name} on the error-trigging process {client.pid} to be torn down")
                    if context.device not in devices:
                        devices.append(context.device)
        self.log("The following devices will be reset:")
        for device in devices:
            self.log(str(device))
        self.log("The following client process have a sticky error set:")
        for client in affected:
            self.log(str(client.pid))
        self._affected.update(affected)
        self._reset.update(devices)
        for client in affected:
            near = any(x.device in first for x in client.contexts)
            client.lose(others if near else LAUNCH_FAILURE)

    def _busy_beside(self, client: ClientProcess) -> list[ClientProcess]:
        """Who computes on its devices."""
        return [c for c in self._on([x.device for x in client.contexts]) if c is not client and c.busy and not c.error]

    def _on(self, devices: Sequence[int]) -> list[ClientProcess]:
        return [c for c in self.listed() if any(x.device in devices for x in c.contexts)]

    def _greet(self, client: ClientProcess, context: int) -> None:
        name = self._name(client.pid, context)
        self.log(f"Client {name} connected")
        self.log(f"Creating worker thread for client {name}")
        self._previous = (client.pid, context)

    def _limit(self, client: ClientProcess) -> None:
        """A client keeps the limits of the moment it connected; its environment can only lower them."""
        own = parse_percentage(client.limit("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
        client.percentage = min(self.percentage, own or 100.0)
        shared = sm_share(client.percentage, self.gpus[client.devices[0] if client.devices else 0])
        client.sm_count = shared if client.own_sms is None else client.own_sms

    @staticmethod
    def _name(pid: int, context: int) -> str:
        return f"{{PID: {pid}, Context ID: {context}}}"
