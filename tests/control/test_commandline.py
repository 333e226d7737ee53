"""Which command lines are a control daemon's, and what they say of it."""

from __future__ import annotations

import pytest

from mpstui.control.commandline import Options, control_arguments, parse_command_line, shown_program


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("nvidia-cuda-mps-control -d", Options(daemon=True)),
        ("/usr/bin/nvidia-cuda-mps-control -f", Options(daemon=True, foreground=True)),
        ("nvidia-cuda-mps-control --daemon --multiuser-server", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control --forground", Options(daemon=True, foreground=True)),
        ("nvidia-cuda-mps-control -Md", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control -d -S -p 3", Options(daemon=True, protocol="v3", static_partitioning=True)),
        ("nvidia-cuda-mps-control -d -multiuser-server", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control -d -M", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control -fM", Options(daemon=True, foreground=True, multiuser=True)),
        ("nvidia-cuda-mps-control -d --multiuser", Options(daemon=True, multiuser=True)),
        ("nvidia-cuda-mps-control -m -d --protocol=3", Options(daemon=True, multiuser=True, protocol="v3")),
        ("nvidia-cuda-mps-control --protocol 3 --daemon", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -d -protocol 3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -d -p=3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -d --proto=3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -d --prot=3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -d --protocol=2", Options(daemon=True)),
        ("nvidia-cuda-mps-control -d --protocol", Options(daemon=True, protocol="unknown")),
        ("nvidia-cuda-mps-control -d --protocol=4", Options(daemon=True, protocol="unknown")),
        ("nvidia-cuda-mps-control -d --protocol=30", Options(daemon=True, protocol="unknown")),
        ("nvidia-cuda-mps-control -d -p 0", Options(daemon=True, protocol="unknown")),
        ("nvidia-cuda-mps-control -p -d", Options(protocol="unknown")),
        ("nvidia-cuda-mps-control -dpv3", Options(daemon=True, protocol="unknown")),
        ("nvidia-cuda-mps-control -d -p 4 -p 3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -d -Sx", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -d -xS", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -d -p 3 -p 2", Options(daemon=True)),
        ("nvidia-cuda-mps-control -d -S", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -S -f", Options(daemon=True, foreground=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -d -s -q", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -dS", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -d --static-partitioning", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -d -static-partitioning", Options(daemon=True, static_partitioning=True)),
        ("nvidia-cuda-mps-control -d -pM", Options(daemon=True, protocol="unknown")),
        ("nvidia-cuda-mps-control -d --apply -S", Options(daemon=True)),
        ("nvidia-cuda-mps-control -d -a -S", Options(daemon=True)),
        ("nvidia-cuda-mps-control -q", Options()),
        ("nvidia-cuda-mps-control -dp3", Options(daemon=True, protocol="v3")),
        ("nvidia-cuda-mps-control -p 1 -d", Options(daemon=True)),
        ("nvidia-cuda-mps-control -p", Options(protocol="unknown")),
        ("/bin/sh -e /x/nvidia-cuda-mps-control -d", Options(daemon=True)),
        ("sh -c nvidia-cuda-mps-control -d", None),
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


@pytest.mark.parametrize(
    ("line", "version", "protocol"),
    [
        ("-d", "3", "v3"),
        ("-d -p 3", "2", "legacy"),
        ("-d -p 2", "3", "v3"),
        ("-d -p 3", "", "v3"),
        ("-d", " 3", "v3"),
        ("-d", "2", "legacy"),
        ("-d", "three", "unknown"),
        ("-d -p 2", "three", "unknown"),
        ("-d", "4", "unknown"),
        ("-d -p 4", "2", "legacy"),
        ("-d -p 4", "", "unknown"),
    ],
)
def test_the_variable_comes_before_the_option(line: str, version: str, protocol: str) -> None:
    argv = ["nvidia-cuda-mps-control", *line.split()]
    found = parse_command_line(argv, {"CUDA_MPS_PROTOCOL_VERSION": version})
    assert found is not None
    assert found.protocol == protocol


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        (["nvidia-cuda-mps-control"], []),
        (["/usr/bin/nvidia-cuda-mps-control", "-d"], ["-d"]),
        (["python3.11", "-s", "/x/nvidia-cuda-mps-control", "-f"], ["-f"]),
        (["/bin/sh", "/x/nvidia-cuda-mps-control"], []),
        (["mpstui", "stand-in", "-d"], ["-d"]),
        (["vim", "nvidia-cuda-mps-control"], None),
        (["python3", "other.py", "nvidia-cuda-mps-control"], None),
        (["nvidia-cuda-mps-server"], None),
        (["sh"], None),
        ([], None),
    ],
)
def test_what_counts_as_the_control_binary(argv: list[str], arguments: list[str] | None) -> None:
    assert control_arguments(argv, ("mpstui", "stand-in")) == arguments


@pytest.mark.parametrize(
    ("binary", "shown"),
    [
        (("/usr/bin/nvidia-cuda-mps-control",), "/usr/bin/nvidia-cuda-mps-control"),
        (("/usr/bin/python3", "-I", "-S", "/x/stand-in"), "/x/stand-in"),
        (("/x/stand-in", "-v"), "/x/stand-in"),
        ((), "nvidia-cuda-mps-control"),
    ],
)
def test_a_command_is_shown_by_its_program(binary: tuple[str, ...], shown: str) -> None:
    assert shown_program(binary) == shown
