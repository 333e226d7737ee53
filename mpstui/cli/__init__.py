"""The command line: parses, runs, prints; stdout is data, stderr is diagnostics."""

from __future__ import annotations


def main() -> int:
    """Run mpstui."""
    return 0
