"""Plans for a cluster, against what NVIDIA's programs take.

The facts of the schemas below were written down from the two programs' sources, the files of their types and of their
checks, as they were in August 2026: the device plugin for Kubernetes, its api/config/v1 (version of the configuration,
sharing with timeSlicing or mps, renameByDefault, failRequestsGreaterThanOne, resources with name, rename, devices and
at least 2 replicas) and the most replicas of its MPS daemon; the DRA driver, its resource/v1beta1 (GpuConfig, the
sharing strategies, MpsConfig with an integer from 0 to 100 and quantities of at least 1 MiB), strictly decoded; and the
ResourceClaimTemplate of resource.k8s.io/v1 from Kubernetes' own reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from mpstui.plan.amounts import PlanError
from mpstui.plan.exports import ClusterKind, ShareSettings, cluster_text

GIB = 1 << 30
DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
SCHEMAS = Path(__file__).parents[1] / "data" / "kubernetes"
"""The published ones, with only the names of what is not used here."""


def closed(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """An object with these keys alone."""
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "required": list(properties) if required is None else required,
    }


NAME = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}
CONFIG_MAP = closed(
    apiVersion={"const": "v1"},
    kind={"const": "ConfigMap"},
    metadata=closed(name=NAME),
    data={
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": "^[-._a-zA-Z0-9]+$"},
        "additionalProperties": {"type": "string"},
    },
)
REPLICATED = closed(
    ["resources"],
    renameByDefault={"type": "boolean"},
    failRequestsGreaterThanOne={"type": "boolean"},
    resources={
        "type": "array",
        "minItems": 1,
        "items": closed(
            ["name", "replicas"],
            name={"type": "string", "pattern": "^nvidia\\.com/[a-z0-9.-]+$"},
            rename={"type": "string"},
            devices={"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}, {"type": "array"}]},
            replicas={"type": "integer", "minimum": 2, "maximum": 48},
        ),
    },
)
PLUGIN = closed(
    ["version"],
    version={"const": "v1"},
    flags={"type": "object"},
    resources={"type": "object"},
    sharing=closed([], timeSlicing=REPLICATED, mps=REPLICATED),
    imex={"type": "object"},
)
QUANTITY = {"type": "string", "pattern": "^[1-9][0-9]*Mi$"}
GPU_CONFIG = closed(
    apiVersion={"const": "resource.nvidia.com/v1beta1"},
    kind={"const": "GpuConfig"},
    sharing=closed(
        strategy={"const": "MPS"},
        mpsConfig=closed(
            [],
            defaultActiveThreadPercentage={"type": "integer", "minimum": 0, "maximum": 100},
            defaultPinnedDeviceMemoryLimit=QUANTITY,
            defaultPerDevicePinnedMemoryLimit={"type": "object", "additionalProperties": QUANTITY},
        ),
    ),
)
CLAIM = closed(
    apiVersion={"const": "resource.k8s.io/v1"},
    kind={"const": "ResourceClaimTemplate"},
    metadata=closed(name=NAME),
    spec=closed(
        spec=closed(
            devices=closed(
                requests={
                    "type": "array",
                    "minItems": 1,
                    "items": closed(name=NAME, exactly=closed(deviceClassName={"const": "gpu.nvidia.com"})),
                },
                config={
                    "type": "array",
                    "items": closed(
                        requests={"type": "array", "items": NAME},
                        opaque=closed(driver={"const": "gpu.nvidia.com"}, parameters=GPU_CONFIG),
                    ),
                },
            )
        )
    ),
)


def shares(count: int, percentage: float | None = None, memory: int | None = None) -> list[ShareSettings]:
    return [ShareSettings(f"client-{number}", percentage, memory) for number in range(count)]


def held(schema: dict[str, Any], told: Any) -> Any:
    Draft202012Validator.check_schema(schema)
    assert not [error.message for error in Draft202012Validator(schema).iter_errors(told)]
    return told


@pytest.mark.parametrize(("kind", "key"), [("device-plugin", "mps"), ("time-slicing", "timeSlicing")])
@pytest.mark.parametrize(("count", "percentage"), [(2, 50.0), (3, 33.4), (4, 25.0), (48, 2.0), (7, None)])
def test_the_device_plugin_takes_it(kind: ClusterKind, key: str, count: int, percentage: float | None) -> None:
    told = held(CONFIG_MAP, yaml.safe_load(cluster_text(kind, shares(count, percentage, 10 * GIB))))
    (text,) = told["data"].values()
    config = held(PLUGIN, yaml.safe_load(text))
    assert list(config["sharing"]) == [key]
    assert config["sharing"][key]["resources"] == [{"name": "nvidia.com/gpu", "replicas": count}]


@pytest.mark.parametrize(
    ("percentage", "memory", "config"),
    [
        (25.0, 10 * GIB, {"defaultActiveThreadPercentage": 25, "defaultPinnedDeviceMemoryLimit": "10240Mi"}),
        (33.4, None, {"defaultActiveThreadPercentage": 33}),
        (None, 56704 << 20, {"defaultPinnedDeviceMemoryLimit": "56704Mi"}),
        (None, None, {}),
    ],
)
def test_the_dra_driver_takes_it(percentage: float | None, memory: int | None, config: dict[str, Any]) -> None:
    told = held(CLAIM, yaml.safe_load(cluster_text("dra", shares(3, percentage, memory))))
    devices = told["spec"]["spec"]["devices"]
    assert devices["config"][0]["opaque"]["parameters"]["sharing"]["mpsConfig"] == config
    assert devices["config"][0]["requests"] == [devices["requests"][0]["name"]]


@pytest.mark.parametrize(
    ("kind", "wrong", "why"),
    [
        ("device-plugin", shares(1, 100.0), "2 to 48"),
        ("device-plugin", shares(49), "2 to 48"),
        ("device-plugin", shares(4, 50.0), "25 %, and the plan 50 %"),
        ("device-plugin", [*shares(2, 25.0), *shares(1, 50.0)], "differ"),
        ("dra", [*shares(1, 25.0, GIB), *shares(1, 25.0, 2 * GIB)], "differ"),
        ("dra", shares(2, 0.5), "whole numbers"),
        ("dra", shares(2, None, 1000), "1 MiB"),
        ("dra", [], "no shares"),
    ],
)
def test_what_they_cannot_say_is_refused(kind: ClusterKind, wrong: list[ShareSettings], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        cluster_text(kind, wrong)


def test_from_the_command_line() -> None:
    size = ("--sm-count-total", "132", "--memory-total", "80GiB", "--clients", "4")
    for kind, schema in (("device-plugin", CONFIG_MAP), ("dra", CLAIM)):
        done = warm.run("plan", *size, "--export", kind)
        assert done.returncode == 0, done.stderr
        held(schema, yaml.safe_load(done.stdout))
    done = warm.run("plan", *size, "--export", "dra", "--share", "client-1")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("daemonset.yaml", "daemonset-apps-v1"),
        ("client-pod.yaml", "pod-v1"),
        ("podmonitor.yaml", "podmonitor-monitoring-v1"),
        (None, "configmap-v1"),
    ],
)
def test_the_published_schemas_take_what_is_deployed(file: str | None, schema: str) -> None:
    """And refuse it with a key that is no key of theirs, wherever it stands."""
    text = (DEPLOY / file).read_text() if file is not None else cluster_text("device-plugin", shares(4))
    published = Draft7Validator(json.loads((SCHEMAS / f"{schema}.json").read_text()))
    (told,) = yaml.safe_load_all(text)
    assert [error.message for error in published.iter_errors(told)] == []
    if schema.startswith("podmonitor"):
        return  # a schema that lets other keys be
    free = {"labels", "matchLabels", "nodeSelector", "requests", "limits", "data"}  # whose keys are names
    checked = 0
    for name, place in objects("", told):
        if name in free:
            continue
        place["mpstui"] = 1
        assert not published.is_valid(told), name
        del place["mpstui"]
        checked += 1
    assert checked >= 2


def objects(name: str, told: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(told, dict):
        for key, value in told.items():
            yield from objects(key, value)
        yield name, told
    elif isinstance(told, list):
        for value in told:
            yield from objects(name, value)
