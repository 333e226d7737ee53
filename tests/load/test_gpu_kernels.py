"""The kernels' results on a real GPU beside NumPy's."""

from __future__ import annotations

import pytest

from mpstui.load.driver import CudaError, Driver, NoDriver

from .reference import copy_error, fma_error, nbody_error, triad_error

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def driver() -> Driver:
    try:
        return Driver()
    except (NoDriver, CudaError) as error:
        pytest.skip(str(error))


def test_accelerations(driver: Driver) -> None:
    assert nbody_error(driver, pytest.importorskip("numpy")) < 1e-3


def test_triad(driver: Driver) -> None:
    assert triad_error(driver, pytest.importorskip("numpy")) < 1e-6


def test_copies(driver: Driver) -> None:
    assert copy_error(driver) == 0


def test_fma(driver: Driver) -> None:
    assert fma_error(driver, pytest.importorskip("numpy")) < 1e-5
