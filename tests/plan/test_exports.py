"""The texts for other programs, read back as those programs read them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from mpstui.plan.amounts import PlanError
from mpstui.plan.exports import EXPORTS, ShareSettings, environment, export_text

GIB = 1 << 30
SHARE = ShareSettings("train", 18.2, 10 * GIB, 1)
HARD = Path('/tmp/it\'s "100%" $HOME \\ `id`')
VARIABLES = environment(SHARE, HARD, ("GPU-1", "GPU-2"))


def test_the_environment() -> None:
    expected = {
        "CUDA_MPS_PIPE_DIRECTORY": str(HARD),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "18.2",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "GPU-1=10G,GPU-2=10G",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
    }
    assert expected == VARIABLES
    assert environment(ShareSettings("all"), None) == {}


def environment_after(script: str, shell: str) -> dict[str, str]:
    done = subprocess.run(
        [shell, "-euc", f"{script}\nenv -0"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    entries = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in entries if name.startswith("CUDA_")}


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_takes_the_export_lines(shell: str) -> None:
    assert environment_after(export_text("shell", SHARE, VARIABLES, None), shell) == VARIABLES


def test_a_task_prolog_prints_what_slurm_takes() -> None:
    text = export_text("slurm", SHARE, VARIABLES, None)
    printed = subprocess.run(["sh", "-eu"], input=text, capture_output=True, text=True, check=True).stdout
    taken = dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines())
    assert taken == VARIABLES
    assert all(line.startswith("export ") for line in printed.splitlines())


def systemd_environment(text: str) -> dict[str, str]:
    """``Environment=`` as systemd.exec(5) and systemd.syntax(7) say: quotes, C escapes, ``%%`` for a percent sign."""
    section, found = "", {}
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            assert (section, key) == ("[Service]", "Environment")
            assert re.fullmatch(r'"(?:[^"\\%]|\\["\\]|%%)*"', value)
            name, _, content = re.sub(r"\\(.)", r"\1", value[1:-1]).replace("%%", "%").partition("=")
            found[name] = content
    return found


def test_a_systemd_drop_in() -> None:
    assert systemd_environment(export_text("systemd", SHARE, VARIABLES, None)) == VARIABLES


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze; parsed by hand above")
def test_systemd_takes_the_drop_in(tmp_path: Path) -> None:
    unit = tmp_path / "mpstui-test.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    folder = tmp_path / "mpstui-test.service.d"
    folder.mkdir()
    (folder / "50-mps.conf").write_text(export_text("systemd", SHARE, VARIABLES, None))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "50-mps.conf" not in done.stderr
    (folder / "50-mps.conf").write_text('[Service]\nEnvironment="A=1\n')
    broken = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert "50-mps.conf" in broken.stderr


def test_a_kubernetes_env_block() -> None:
    first, *rest = export_text("kubernetes", SHARE, VARIABLES, None).splitlines()
    assert first == "env:"
    found = {}
    for name, value in zip(rest[::2], rest[1::2], strict=True):
        assert name.startswith("  - name: ")
        assert value.startswith("    value: ")
        found[name.removeprefix("  - name: ")] = json.loads(value.removeprefix("    value: ")).replace("$$", "$")
    assert found == VARIABLES  # strings all of them: Kubernetes refuses numbers
    odd = export_text("kubernetes", SHARE, {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/\U0001f600 $(HOME)"}, None)
    assert odd.endswith('    value: "/tmp/\U0001f600 $$(HOME)"\n')


def test_the_wrapper_hands_every_argument_on() -> None:
    text = export_text("wrapper", ShareSettings("it's"), {}, "two tenants")
    *_, last = text.splitlines()
    assert text.startswith("#!/bin/sh\n")
    expected = ["exec", "mpstui", "run", "--profile", "two tenants", "--share", "it's", "--", "$@"]
    assert shlex.split(last) == expected
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    with pytest.raises(PlanError, match="--save"):
        export_text("wrapper", SHARE, {}, None)


@pytest.mark.parametrize("kind", [kind for kind in EXPORTS if kind != "wrapper"])
def test_control_characters_are_not_written(kind: str) -> None:
    with pytest.raises(PlanError, match="control characters"):
        export_text(kind, SHARE, {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/a\nExecStart=/bin/false"}, None)
