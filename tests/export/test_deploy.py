"""The alert rules and the board: each rule is tested by promtool, and each expression is run by a real Prometheus that
scrapes simulated nodes and evaluates the rules."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpstui.cli.parser import build_parser

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "mpstui.rules.yml"
BOARD = DEPLOY / "grafana" / "mpstui.json"
PATIENCE = 240.0
NODES = ("demo", "fault", "held", "pending")
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (apt-get install prometheus)",
)


def rules() -> list[dict[str, Any]]:
    return yaml.safe_load(RULES.read_text())["groups"][0]["rules"]


def expressions() -> list[tuple[str, str]]:
    """Title and expression of each panel, annotation and variable, as Grafana would send it. An annotation's threshold
    is left out: without a new fault it has no data, and is to have some here."""
    board = json.loads(BOARD.read_text())
    found = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    found += [(each["name"], each["expr"].removesuffix(" > 0")) for each in board["annotations"]["list"]]
    asked = [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"]
    values = [re.fullmatch(r"label_values\((\w+), (\w+)\)", each) for each in asked]
    found += [("a variable", f"group by ({each[2]}) ({each[1]}{{{each[2]}!=''}})") for each in values if each]
    assert len(found) == sum(len(panel["targets"]) for panel in board["panels"]) + 1 + len(asked) > 37
    known = {"$node": "(" + "|".join(f"node{at}" for at, _ in enumerate(NODES)) + ")", "$__rate_interval": "1m"}
    for name, value in known.items():
        found = [(title, expr.replace(name, value)) for title, expr in found]
    assert not any("$" in expr for _, expr in found)
    return found


def test_the_board_is_whole() -> None:
    board = json.loads(BOARD.read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert all("${datasource}" in json.dumps(target) for panel in panels for target in panel["targets"])
    assert {v["name"] for v in board["templating"]["list"]} == {"datasource", "node"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_has_a_remedy_and_a_command_that_can_be_typed(rule: dict[str, Any]) -> None:
    told = rule["annotations"]
    assert "Remedy: " in told["description"]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    command = re.sub(r"\{\{ reReplaceAll .*? \$labels\.pipe_dir \}\}", "/tmp/mps_0", told["command"])
    assert "{{" not in command
    name, *words = shlex.split(command)
    if name == "mpstui":
        build_parser().parse_args(words)
    else:
        assert name == "journalctl"


def test_the_alert_of_a_held_daemon_says_what_is_so_and_ends_no_daemon() -> None:
    """Clients connect beside an open session (fact 2), and “quit” typed into it ends the daemon (fact 19)."""
    (told,) = [rule["annotations"]["description"] for rule in rules() if rule["alert"] == "MpsDaemonHeld"]
    assert "clients still connect" in told
    assert "new clients and every other command wait" not in " ".join(told.split())
    assert "types quit" not in told


@needs_prometheus
def test_each_rule_fires_when_it_should_and_not_before() -> None:
    told = subprocess.run(
        ["promtool", "test", "rules", RULES.with_suffix(".test.yml")], capture_output=True, text=True, timeout=120
    )
    assert told.returncode == 0, told.stdout + told.stderr
    tested = RULES.with_suffix(".test.yml").read_text()
    for rule in rules():
        assert re.search(rf"alertname: {rule['alert']}\n        exp_alerts:", tested), rule["alert"]


@needs_prometheus
@pytest.mark.parametrize("value", ["92.31", "1.0417", "48.9999", "2345678901.5"])
def test_what_an_alert_says_is_rounded_and_names_the_node_by_either_label(value: str, tmp_path: Path) -> None:
    """Rates are extrapolated and shares are fractions: each rule is given a value that no count can have."""
    made = []
    for number, rule in enumerate(rules()):
        label = "Hostname" if number % 2 else "hostname"
        expr = f'label_replace(vector({value}), "{label}", "n{number}", "", "")'
        made.append({**{k: v for k, v in rule.items() if k != "for"}, "expr": expr})
    (tmp_path / "odd.yml").write_text(yaml.safe_dump({"groups": [{"name": "odd", "rules": made}]}))
    tests = [{"eval_time": "1m", "alertname": rule["alert"], "exp_alerts": []} for rule in made]
    whole = {"rule_files": ["odd.yml"], "tests": [{"interval": "1m", "input_series": [], "alert_rule_test": tests}]}
    (tmp_path / "odd.test.yml").write_text(yaml.safe_dump(whole))
    words = ["promtool", "test", "rules", tmp_path / "odd.test.yml"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=120)
    said = re.findall(r"Annotations:\{(.*)\}", told.stdout + told.stderr)
    assert len(said) == len(made), told.stdout + told.stderr
    for number, text in enumerate(said):
        rule, alone = made[number], re.sub(r"\bn\d+\b", "n", text)
        assert "$labels.Hostname" not in str(rule["annotations"]) or f"n{number}" in text, text
        assert not re.search(r"<error|e\+|%!", alone), text
        for figure in re.findall(r"(?<![\w.])\d+\.\d+\S*(?: \w+)?", alone):
            assert re.fullmatch(r"\d+\.\d GiB", figure), text
        assert not re.search(r"\b1 (clients|processes|servers) ", alone), text


class Prometheus:
    def __init__(self, folder: Path, targets: list[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {
                    "job_name": "mpstui",
                    "static_configs": [
                        {"targets": [target], "labels": {"Hostname": f"node{number}"}}
                        for number, target in enumerate(targets)
                    ],
                    "honor_labels": False,
                    "metric_relabel_configs": [{"regex": "exported_Hostname", "action": "labeldrop"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.child = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL, stderr=(folder / "log").open("w"),
        )  # fmt: skip

    def ask(self, what: str, **values: str) -> Any:
        query = urllib.parse.urlencode(values)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{what}?{query}", timeout=60) as answer:
            return json.load(answer)["data"]

    def until(self, what: Callable[[], Any], about: str = "") -> Any:
        """What it answers, once it is something."""
        deadline, found = time.monotonic() + PATIENCE, None
        while not found:
            assert time.monotonic() < deadline, about
            try:
                found = what()
            except OSError:
                found = None
            time.sleep(0.2)  # a question each 0.2 s, not as many as there can be
        return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as held:
        targets = []
        for node in NODES:
            child = subprocess.Popen(
                [sys.executable, "-m", "mpstui", "exporter", f"--demo={node}", "--listen", "127.0.0.1:0"],
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            held.callback(child.wait, 120)
            held.callback(child.terminate)
            assert child.stderr is not None
            targets.append(re.search(r"//(\S+)/metrics", child.stderr.readline())[1])  # type: ignore[index]
        server = Prometheus(folder, targets)
        held.callback(server.child.wait, 120)
        held.callback(server.child.terminate)
        yield server


@needs_prometheus
def test_board_and_rules_on_a_real_prometheus(prometheus: Prometheus) -> None:
    """One test, because what it needs is started once."""
    for title, expr in expressions():
        prometheus.until(lambda expr=expr: prometheus.ask("query", query=expr)["result"], title)

    held = prometheus.until(lambda: prometheus.ask("query", query='mps_daemon_state{state="held"} == 1')["result"])
    assert [each["metric"]["Hostname"] for each in held] == [f"node{NODES.index('held')}"]

    fired = prometheus.until(
        lambda: [
            each["labels"]["Hostname"]
            for each in prometheus.ask("alerts")["alerts"]
            if each["labels"]["alertname"] == "MpsServerFault" and each["state"] == "firing"
        ]
    )
    assert set(fired) == {f"node{NODES.index('fault')}"}

    def all_evaluated() -> list[Any]:
        (group,) = prometheus.ask("rules")["groups"]
        return [rule for rule in group["rules"] if rule["health"] == "unknown"] == [] and group["rules"]

    assert [rule["name"] for rule in prometheus.until(all_evaluated) if rule["health"] != "ok"] == []
