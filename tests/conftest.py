"""What every test of the screen needs: keys that are waited for by what is left to do."""

from __future__ import annotations

import sys
from pathlib import Path

import textual.app
import textual.pilot

sys.path.append(str(Path(__file__).parent))

from settled import settled

textual.app.wait_for_idle = settled
textual.pilot.wait_for_idle = settled
