"""Each command of a daemon by itself. The program puts some of them together: a change with what reads it back."""

from __future__ import annotations

from typing import TypeVar

from mpstui.control.answer import Answer
from mpstui.control.mps import MpsControl
from mpstui.control.wire import DeviceClients, Question

T = TypeVar("T")


class Commands(MpsControl):
    """The commands of one daemon, with those that the program sends in company only. ``device``: an ordinal or a UUID;
    ``text``: a size as MPS writes it, ``10G``."""

    async def get_device_client_list(self, server: int | None = None) -> Answer[tuple[DeviceClients, ...]]:
        return await self._ask(self.protocol.contexts(server))

    async def set_default_active_thread_percentage(self, value: float) -> Answer[float]:
        return await self._ask(self.protocol.set_default_percentage(value))

    async def set_active_thread_percentage(self, server: int, value: float) -> Answer[float]:
        return await self._of(server, self.protocol.set_percentage(server, value))

    async def get_default_device_pinned_mem_limit(self, device: str | int) -> Answer[int | None]:
        return await self._ask(self.protocol.memory_limit(None, str(device)))

    async def set_default_device_pinned_mem_limit(self, device: str | int, text: str) -> Answer[None]:
        return await self._ask(self.protocol.set_memory_limit(None, str(device), text))

    async def get_device_pinned_mem_limit(self, server: int, device: str | int) -> Answer[int | None]:
        return await self._ask(self.protocol.memory_limit(server, str(device)))

    async def set_device_pinned_mem_limit(self, server: int, device: str | int, text: str) -> Answer[None]:
        return await self._of(server, self.protocol.set_memory_limit(server, str(device), text))

    async def get_default_client_priority(self) -> Answer[int]:
        return await self._ask(self.protocol.priority())

    async def set_default_client_priority(self, value: int) -> Answer[None]:
        return await self._ask(self.protocol.set_priority(value))

    async def _of(self, server: int, question: Question[T]) -> Answer[T]:
        return await self._unless_starting(await self._ask(question), server)
