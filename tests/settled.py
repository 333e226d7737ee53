"""Waiting until the screen has nothing left to do, by what the event loop holds instead of by processor time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from textual._context import active_app

DEADLINE = 120.0


async def settled(min_sleep: float = 0.0, max_sleep: float = DEADLINE) -> None:
    """Return when no callback is ready, nothing moves on the screen and all of it is painted.

    Textual's own wait sleeps 20 ms and looks whether the process used the processor meanwhile: two or three times that
    for a key, and on a busy machine a process that was not let run looks like one that has finished.
    """
    loop: Any = asyncio.get_running_loop()
    app = active_app.get()
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        typeahead = getattr(app, "typeahead", None)
        if typeahead is not None and typeahead.busy and not app._exit:
            await asyncio.sleep(0.001)  # it waits until no callback is ready, not even this one
            continue
        if app._exit:
            return  # before a look at what is ready: the program, too, waits then until nothing is
        await asyncio.sleep(0)
        if loop._ready:
            continue
        if not app._animator._idle_event.is_set():
            await app._animator.wait_for_idle()
        elif app._batch_count or app._resize_event is not None:
            await asyncio.sleep(0.002)  # a timer of Textual's ends these
        elif app._screen_stack and app.screen._update_timer._active.is_set():
            app.screen._on_timer_update()
        else:
            return
    raise TimeoutError("the screen does not come to rest")
