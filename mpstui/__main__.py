"""``python -m mpstui``."""

import sys

from mpstui.cli import main

if __name__ == "__main__":
    sys.exit(main())
