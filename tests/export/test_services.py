"""Unit, container file and manifests: what they start is a command line of this program, with rights enough."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpstui.cli.parser import build_parser
from mpstui.sim import SimNode

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "mpstui-exporter.service"
CONTAINER = DEPLOY / "container" / "Containerfile"
EXPOSURE = 35
"""Tenths, as systemd-analyze counts: 100 is a service without any fence."""


def setting(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "kubernetes" / f"{name}.yaml").read_text())


def test_the_unit_starts_the_exporter() -> None:
    (variable,), (start,) = setting("Environment"), setting("ExecStart")
    name, _, value = variable.strip('"').partition("=")
    program, *words = shlex.split(start.replace(f"${name}", value))
    assert program == "/usr/bin/mpstui"
    assert build_parser().parse_args(words).listen == ["127.0.0.1:9936"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_fenced() -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", UNIT]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "unrecognized option" in told.stderr:
        pytest.skip("this systemd-analyze cannot look at a file")
    assert told.returncode == 0, told.stdout[-200:] + told.stderr
    verified = subprocess.run(["systemd-analyze", "verify", UNIT], capture_output=True, text=True, timeout=120)
    unknown = [line for line in verified.stderr.splitlines() if "Unknown" in line or "Failed to parse" in line]
    assert unknown == []


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_the_unit_s_capabilities_are_enough() -> None:
    """Root with these alone sees the clients of other users, with their memory and limits."""
    (granted,) = setting("CapabilityBoundingSet")
    bounds = ",".join(("-all", *("+" + name.removeprefix("CAP_").lower() for name in granted.split())))
    command = ["setpriv", f"--bounding-set={bounds}", "--no-new-privs", sys.executable, "-m", "mpstui", "exporter"]
    with SimNode.start(Path(tempfile.mkdtemp(prefix="mpstui-svc-"))) as node:
        node.spawn("busy", user="alice")
        arguments = ["--pipe-dir", node.pipe_dir, "--textfile", "-", "--once"]
        told = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert re.search(r'^mps_clients\{.*state="ACTIVE",user="alice"\} 1.0$', told.stdout, re.MULTILINE), told.stdout


def test_the_container_starts_the_exporter_of_the_deb() -> None:
    text = re.sub(r"\\\n", " ", CONTAINER.read_text())
    steps = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {word for word, _ in steps} <= {"ARG", "FROM", "COPY", "RUN", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}
    told = dict(steps)
    program, *words = json.loads(told["ENTRYPOINT"]) + json.loads(told["CMD"])
    assert program == "/usr/bin/mpstui"
    port = build_parser().parse_args(words).listen[0].rpartition(":")[2]
    assert told["EXPOSE"] == port
    assert told["COPY"].startswith("dist/mpstui_*.deb ")
    assert ":latest" not in text


def test_the_manifests_belong_together() -> None:
    daemons, monitor = manifest("daemonset"), manifest("podmonitor")
    pod = daemons["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert daemons["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (container,) = pod["spec"]["containers"]
    listen = build_parser().parse_args(["exporter", *container["args"]]).listen[0]
    (port,) = container["ports"]
    assert listen == f":{port['containerPort']}"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"] == container["readinessProbe"]["httpGet"]["port"]
    assert endpoint["honorLabels"], "else the clients' pod becomes exported_pod"
    assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in pod["spec"]["volumes"]}
    assert {f"CAP_{name}" for name in container["securityContext"]["capabilities"]["add"]} == set(
        setting("CapabilityBoundingSet")[0].split()
    )
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")


def test_the_daemonset_holds_its_published_schema() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate (22 MB of schemas)")
    validate.validate(manifest("daemonset"), "1.31", strict=True)
