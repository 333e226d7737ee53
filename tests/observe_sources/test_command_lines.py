"""Which command lines are a control daemon's, and what they say of it."""

from __future__ import annotations

import pytest

from mpstui.observe.daemons import Options, parse_command_line


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("nvidia-cuda-mps-control -d", Options(daemon=True)),
        ("/usr/bin/nvidia-cuda-mps-control -f", Options(daemon=True)),
        ("nvidia-cuda-mps-control --daemon --multiuser-server", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control --forground", Options(daemon=True)),
        ("nvidia-cuda-mps-control -Md", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control -d -S -p 3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -dp3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -p 1 -d", Options(daemon=True)),
        ("nvidia-cuda-mps-control -p", Options()),
        ("nvidia-cuda-mps-control", Options()),
        ("nvidia-cuda-mps-control get_server_list", Options()),
        ("nvidia-cuda-mps-control server create training --uid=1000", Options()),
        ("nvidia-cuda-mps-control -- -d", Options()),
        ("python3.11 -I -S /x/sim/bin/nvidia-cuda-mps-control -d", Options(daemon=True)),
        ("/usr/bin/python -IS -W error -X dev -Xmode nvidia-cuda-mps-control -d", Options(daemon=True)),
        ("python -c nvidia-cuda-mps-control -d", None),
        ("python -Im nvidia-cuda-mps-control -d", None),
        ("python train.py nvidia-cuda-mps-control -d", None),
        ("python", None),
        ("grep nvidia-cuda-mps-control -d", None),
        ("nvidia-cuda-mps-server", None),
        ("vim /x/nvidia-cuda-mps-control -d", None),
        ("", None),
    ],
)
def test_command_lines(line: str, options: Options | None) -> None:
    assert parse_command_line(line.split()) == options
