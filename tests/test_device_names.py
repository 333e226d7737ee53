"""A device is named by its number, its UUID or the first characters of that, wherever one is named."""

from __future__ import annotations

import pytest

from mpstui.cli.shares import choose_device
from mpstui.core.model import Daemon, Device, device_named
from mpstui.core.text import device_keys
from mpstui.daemons.spec import _device
from mpstui.operations.check import Refused
from mpstui.operations.limits import device_ordinal
from mpstui.plan.amounts import PlanError
from mpstui.plan.settings import ordinal_of

ONE, TWO = "GPU-bd23a1aa-0000-0000-0000-000000000001", "GPU-bd77a1aa-0000-0000-0000-000000000002"
PART = "MIG-bd230000-0000-0000-0000-000000000003"
UUIDS = {"0": ONE, "1": TWO, "2": PART}
DEVICES = tuple(Device(uuid, int(key), "H100", 132) for key, uuid in UUIDS.items())


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("0", ["0"]),
        (" 1 ", ["1"]),
        (ONE, ["0"]),
        ("GPU-bd23", ["0"]),
        ("GPU-bd7", ["1"]),
        ("GPU-bd", ["0", "1"]),
        ("MIG-b", ["2"]),
        ("GPU-", []),
        ("bd23", []),
        ("GPU-ff", []),
        ("3", []),
        ("", []),
        (ONE + "0", []),
    ],
)
def test_who_is_meant(text: str, keys: list[str]) -> None:
    assert device_keys(text, UUIDS) == keys


def test_everywhere_that_a_device_is_named() -> None:
    daemon = Daemon(pipe_dir=__file__, ordinals=UUIDS)  # type: ignore[arg-type]
    assert device_ordinal(daemon, "GPU-bd7") == "1"
    assert ordinal_of(daemon, "GPU-bd7") == "1"
    assert device_named("GPU-bd7", DEVICES) is DEVICES[1]
    assert choose_device(DEVICES, "GPU-bd7") is DEVICES[1]
    assert _device("GPU-bd7", DEVICES) == TWO
    with pytest.raises(Refused, match="2 devices of the daemon begin with 'GPU-bd'"):
        device_ordinal(daemon, "GPU-bd")
    with pytest.raises(PlanError, match="2 devices that begin with GPU-bd"):
        ordinal_of(daemon, "GPU-bd")
    for text, words in (("GPU-bd", "2 GPUs begin with “GPU-bd”"), ("GPU-x\x1b[2J", "there is no GPU “GPU-x")):
        with pytest.raises(PlanError, match=words) as caught:
            choose_device(DEVICES, text)
        assert str(caught.value).isprintable()
    assert _device("GPU-bd7", ()) == "GPU-bd7"  # without NVML it is CUDA's to find out
    with pytest.raises(PlanError, match="give its UUID"):
        _device("bd7", ())
