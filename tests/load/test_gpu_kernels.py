"""The kernels' results on a real GPU beside NumPy's."""

from __future__ import annotations

import pytest

from mpstui.load.driver import CudaDriver, CudaError, NoDriver

from .reference import copy_error, fma_error, nbody_error, triad_error

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def driver() -> CudaDriver:
    try:
        return CudaDriver()
    except (NoDriver, CudaError) as error:
        pytest.skip(str(error))


def test_accelerations(driver: CudaDriver) -> None:
    assert nbody_error(driver, pytest.importorskip("numpy")) < 1e-3


def test_triad(driver: CudaDriver) -> None:
    assert triad_error(driver, pytest.importorskip("numpy")) < 1e-6


def test_copies(driver: CudaDriver) -> None:
    assert copy_error(driver) == 0


def test_fma(driver: CudaDriver) -> None:
    assert fma_error(driver, pytest.importorskip("numpy")) < 1e-5
