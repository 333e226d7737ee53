"""What a worker says on a machine without a driver, or with one that is too old; the bindings are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpstui.load.driver import CudaDriver, NoDriver

SEARCH = '"cuda" is an NVIDIA driver library and can only be found via system search. Ensure that it is installed.'


def fails(text: str) -> SimpleNamespace:
    def init(_flags: int) -> None:
        raise RuntimeError(text)

    return SimpleNamespace(cuInit=init)


@pytest.mark.parametrize(
    ("bindings", "kind", "text"),
    [
        (fails(SEARCH), "no_driver", f"no CUDA driver library here: {SEARCH.partition('. ')[0]}"),
        (fails(""), "no_driver", "no CUDA driver library here"),
        (
            SimpleNamespace(cuInit=lambda _flags: (0,), cuDriverGetVersion=lambda: (0, 11040)),
            "old_driver",
            "the driver has CUDA 11.4, too old for the kernels",
        ),
    ],
    ids=["no library", "no words", "too old"],
)
def test_no_driver_is_told(monkeypatch: pytest.MonkeyPatch, bindings: object, kind: str, text: str) -> None:
    monkeypatch.setattr("mpstui.load.driver.importlib.import_module", lambda _name: bindings)
    with pytest.raises(NoDriver) as told:
        CudaDriver()
    error = told.value.error
    assert (error.kind, error.text) == (kind, text)
    assert error.remedy
