"""The contract suite's fixtures."""

from contract.fixtures import control, node

__all__ = ["control", "node"]
