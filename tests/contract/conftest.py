"""The contract suite's fixtures; what is marked ``every_driver`` is asked of the stand-in of each driver."""

import pytest

from contract.fixtures import control, driver, node
from contract.harness import chosen
from mpstui.control.drivers import DRIVERS

__all__ = ["control", "driver", "node"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A real node has one driver, its own."""
    if metafunc.definition.get_closest_marker("every_driver") is not None and chosen() == "sim":
        metafunc.parametrize("driver", [driver.version for driver in DRIVERS], indirect=True)
