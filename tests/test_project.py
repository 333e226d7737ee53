"""The files around the program: they name what is there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import venv
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page: str) -> None:
    file = ROOT / page
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", file.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (file.parent / target).exists(), target


def test_the_tests_that_security_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) >= 3
    for name in named:
        assert (ROOT / name).exists(), name


def test_the_forge_runs_what_a_developer_runs() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    job = flow["jobs"]["test"]
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert runs[-2:] == ["make test", "make test-slow"]
    assert "make --keep-going test test-slow\n" in (ROOT / ".ci/run").read_text()
    assert flow["permissions"] == {"contents": "read"}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = job["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == project["requires-python"]
    told = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    assert told == pythons, "what is claimed is tried"
    assert set(flow) == {"name", True, "permissions", "concurrency", "jobs"}, "YAML reads the key on as true"


class _Case:
    """A test as pytest has collected it."""

    path = ROOT / "tests/test_of_nothing.py"

    def __init__(self, nodeid: str, slow: bool) -> None:
        self.nodeid, self.slow = nodeid, slow
        if "[" in nodeid:
            self.callspec = nodeid

    def get_closest_marker(self, name: str) -> object:
        return True if self.slow and name == "slow" else None


def test_the_two_parts_of_the_tests_are_all_of_them_once(request: pytest.FixtureRequest) -> None:
    """A test that is in no part is run by nobody: CI runs the two."""
    plugin = request.config.pluginmanager.get_plugin(os.fspath(ROOT / "tests/conftest.py"))
    named = {"quick": False, "quick[1]": False, "slow": True, "slow of two[1]": True, "slow of two[2]": True}

    def part(name: str) -> list[str]:
        items = [_Case(nodeid, slow) for nodeid, slow in named.items()]
        told = SimpleNamespace(pytest_deselected=lambda items: None)
        plugin._leave_out_others(SimpleNamespace(getoption=lambda _: name, hook=told), items)
        return [item.nodeid for item in items]

    assert part("usual") == ["quick", "quick[1]", "slow of two[1]"]
    assert part("slow") == ["slow", "slow of two[2]"]
    assert part("all") == list(named)


def test_the_scripts_for_a_gpu_machine_find_what_they_import() -> None:
    """Nothing else runs them without a GPU, and on a rented one it is too late."""
    scripts = [path for path in sorted((ROOT / "scripts").glob("gpu-*")) if b"python" in path.read_bytes()[:40]]
    assert len(scripts) >= 5
    program = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path, run_name='rehearsal')"
    done = subprocess.run([sys.executable, "-c", program, *scripts], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def script_named(name: str) -> ModuleType:
    loader = SourceFileLoader(f"{name}_script", str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(f"{name}_script", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    return script


def test_the_page_of_a_package_index_has_no_link_that_leads_nowhere() -> None:
    script = script_named("packages")
    readme = (ROOT / "README.md").read_text()
    links = re.compile(r"\]\(([^)\s]+)\)")
    whole = script.index_page(readme, "https://forge.example/mpstui", "1.2.3")
    assert "![mpstui on a simulated node](https://forge.example/mpstui/raw/v1.2.3/screenshots/overview.png)" in whole
    assert "(https://forge.example/mpstui/blob/v1.2.3/docs/mps.md)" in whole
    assert len(links.findall(whole)) == len(links.findall(readme)) > 10
    for page in (whole, script.index_page(readme, "", "1.2.3")):
        assert all("://" in target for target in links.findall(page))


def test_wheels_are_built_where_the_environment_has_no_pip_of_its_own(tmp_path: Path) -> None:
    """As `make setup` makes it: `make packages` was broken there for hours, and nothing said so."""
    venv.create(tmp_path, with_pip=False, symlinks=True)
    python = tmp_path / "bin/python"
    program = (
        "import runpy, subprocess, sys; pip = runpy.run_path(sys.argv[1])['pip'](); "
        "sys.exit(subprocess.run([*pip, '--version']).returncode)"
    )
    command = [python, "-c", program, ROOT / "scripts" / "packages"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stdout[:4]) == (0, "pip "), told.stderr


def test_what_is_released_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources that the wheel is built of: what is tracked, with the addresses of the release in it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    script = script_named("packages")
    monkeypatch.setattr(script, "BUILD", tmp_path)
    monkeypatch.setenv("MPSTUI_REPOSITORY", "https://forge.example/mpstui/")
    tree = script.source()
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Issues"] == "https://forge.example/mpstui/issues"
    assert f"https://forge.example/mpstui/blob/v{project['version']}/docs/mps.md" in (tree / "README.md").read_text()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in (*wheel["packages"], *wheel["force-include"], *wheel["shared-data"], *project["license-files"]):
        assert (tree / name).exists(), name
    monkeypatch.setenv("MPSTUI_REPOSITORY", "http://forge.example/$(id)")
    with pytest.raises(SystemExit, match="https"):
        script.source()


def test_each_fact_has_a_number_of_its_own_and_each_number_a_fact() -> None:
    """Two with one number: one of them is what nobody finds."""
    numbers = re.findall(r"^(\d+)\. ", (ROOT / "docs" / "facts.md").read_text(), re.MULTILINE)
    assert len(numbers) == len(set(numbers))
    for file in (ROOT / "mpstui").rglob("*.py"):
        for number in re.findall(r"\b[Ff]act (\d+)\b", file.read_text()):
            assert number in numbers, f"{file.name}: fact {number}"


def test_what_an_addition_takes_is_where_the_count_says() -> None:
    house = script_named("house")
    assert [len(files) for files in house.touched(ROOT).values()] == [2, 3, 3, 2, 1]
    with pytest.raises(SystemExit, match="correct TRIALS"):
        house.touched(ROOT / "docs")


def test_each_class_has_a_name_of_its_own() -> None:
    named: dict[str, list[str]] = {}
    for file in (ROOT / "mpstui").rglob("*.py"):
        for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE):
            named.setdefault(name, []).append(file.name)
    assert {name: files for name, files in named.items() if len(files) > 1} == {}


def test_who_has_no_name_is_told_by_the_number() -> None:
    """``text.owner``, or ``user_text`` in a column of users: a name alone is — for whoever is in no list of users."""
    found = {file.name for file in (ROOT / "mpstui").rglob("*.py") if ".user or UNKNOWN" in file.read_text()}
    assert found == set()


def test_no_test_gives_a_daemon_less_time_than_a_busy_machine_takes() -> None:
    short = re.compile(r"MPSTUI_CONTROL_DEADLINE\"?(=|, |: )\"(\d|[1-5]\d)(\.\d+)?\"")
    found = [path.name for path in (ROOT / "tests").rglob("*.py") if short.search(path.read_text())]
    assert found == [], "usual() of tests/deadline.py is for a daemon that does not answer"
