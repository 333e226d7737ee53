"""What stands for SM activity where NVML has none, by its own name, at every size."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mpstui.fields import DEVICE, View, device_load, table
from mpstui.ui.panels.devices import DevicesPanel
from mpstui.ui.plots import DeviceHistory
from tests.ui.snapshots import device, rich

OLD = replace(
    device(0, 3),
    tells_sm=False,
    sm_utilization=None,
    sm_occupancy=None,
    dram_utilization=None,
    gpu_utilization=97.0,
    memory_utilization=34.0,
)


def painted(one, lines: int, width: int) -> str:
    panel, history = DevicesPanel(), DeviceHistory()
    history.take(replace(rich(devices=(one,)), time=rich().time - 60))
    panel.set_rows = lambda rows, lines_per_device: setattr(panel, "_lines_per_row", lines_per_device)  # type: ignore[method-assign]
    panel.show(rich(devices=(one,)), lines, history)
    return "\n".join("".join(text for text, _ in line) for line in panel.row_lines(one, width))


@pytest.mark.parametrize(("lines", "width"), [(3, 76), (3, 150), (2, 76), (1, 76), (1, 150)])
def test_gpu_util_is_shown_by_its_name_where_there_is_no_sm_activity(lines: int, width: int) -> None:
    text = painted(OLD, lines, width)
    assert "GPU-Util" in text
    assert "97 %" in text
    assert max(map(len, text.splitlines())) <= width
    if lines == 3:
        assert "memory utilisation  34 %" in text
        assert "DRAM" not in text
    new = painted(device(0, 3), lines, width)
    assert "GPU-Util" not in new
    assert max(map(len, new.splitlines())) <= width


def test_one_whose_activity_is_only_not_read_yet_stays_unknown() -> None:
    waiting = replace(OLD, tells_sm=True)
    assert "GPU-Util" not in painted(waiting, 3, 100)
    # The plots too: what was read meanwhile is another thing.
    assert "97 %" not in painted(waiting, 12, 100)

    rows = table(DEVICE, (waiting, OLD, device(0, 3)), View())
    column = [row[rows[0].index("SM UTIL")] for row in rows[1:]]
    assert column[0] == "—"
    assert column[1] == "GPU-Util 97 %"
    assert column[2].endswith(" %")
    details = [fact.text for _, _, facts in DEVICE.details(OLD, View()) for fact in facts]
    assert any("Hopper and later have it" in text for text in details)


def test_the_plots_call_gpu_util_by_its_name() -> None:
    assert re.search(r"GPU-Util .* max 97 %", painted(OLD, 12, 150))
    assert not re.search(r"\bSM\b.* max", painted(OLD, 12, 150))
    new = replace(OLD, tells_sm=True, sm_utilization=12.0)
    assert re.search(r"\bSM .* max 12 %", painted(new, 12, 150))


@pytest.mark.parametrize("one", [device(0, 3), OLD, replace(device(0, 3), mig=True, contexts=None)])
@pytest.mark.parametrize(("lines", "width"), [(3, 150), (2, 150), (1, 200)])
def test_what_the_panel_says_of_a_device_its_fields_say(one, lines: int, width: int) -> None:
    text = " ".join(painted(one, lines, width).split())
    shown = ["name", "sm_count", "contexts", device_load(one)[0], "memory_used", "power_watts", "temperature"]
    for name in [*shown, *(["compute_mode", "mig"] if lines > 1 else [])]:
        said = "".join(part for part, _ in DEVICE[name].cell(one, View(), 29 if lines > 1 else 6))
        assert " ".join(said.split()) in text, name
