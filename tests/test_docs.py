"""The documentation: what is made from tables is as the tables are, no link is dead, every page is in the site."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from mpstui.ui.keymap import places

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("docs_script", str(ROOT / "scripts" / "docs"))
    spec = importlib.util.spec_from_loader("docs_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def anchors(text: str) -> set[str]:
    """The ids of a page's headings, as forges and mkdocs make them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in plain}


def test_pages_that_are_made_are_up_to_date(script: ModuleType) -> None:
    made = script.pages()
    for name, text in made.items():
        kept = ROOT / "docs" / name
        assert kept.is_file(), f"docs/{name}: make manual"
        assert kept.read_text() == text, f"docs/{name}: make manual"
    assert {"keys.md", "schema/status.json", "schema/recording.json"} <= set(made)
    told = made["troubleshooting.md"]
    assert "`CUDA_ERROR_DEVICE_UNAVAILABLE`" in told
    assert "Maximum number of clients (N) reached." in told
    assert "| `mount` |" in told
    assert all(f"### {kind.replace('_', ' ')}" in told for kind in script.LINES), "each has been recorded"
    assert "--pipe-dir DIR" in made["command-line.md"]
    assert "## mpstui daemon start" in made["command-line.md"]


def test_every_picture_of_the_demo_is_shown(script: ModuleType) -> None:
    there = {file.name for file in (ROOT / "screenshots").glob("*.png") if not file.name.startswith("real-")}
    assert set(script.PICTURES) == there


def test_every_picture_is_made_by_the_script_of_the_pictures(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    makes = runpy.run_path(str(ROOT / "scripts" / "screenshots.py"))["PLACES"]
    made = {f"{view.name}.png" for place in makes for view in place.views if view.page}
    assert set(script.PICTURES) == made | {"browser.png"}


def test_every_screen_has_its_picture(script: ModuleType) -> None:
    screens = {name.partition(":")[0] for name in places()}
    assert screens | {"the past", "tour", "fleet", "web"} == set(script.SCREENS)
    assert set(script.SCREENS.values()) <= set(script.PICTURES)
    page = (ROOT / "docs" / "screens.md").read_text()
    assert all(f"](../screenshots/{picture})" in page for picture in script.SCREENS.values())


def examples() -> list[tuple[str, str]]:
    """The commands in the pages' blocks, each as far as the shell's part of it, with their page."""
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    lines = ((page.name, line) for page in pages for line in page.read_text().splitlines())
    found = ((page, re.match(r"(?: {4}|\t)+(?:\$ )?(?:sudo )?(mpstui(?: .*)?)$", line)) for page, line in lines)
    return [(page, re.split(r"\s+#|\s+[|>]", line[1])[0]) for page, line in found if line is not None]


def test_each_command_of_a_page_is_one_that_the_program_takes(capsys: pytest.CaptureFixture[str]) -> None:
    from mpstui.cli.parser import build_parser

    parser, wrong = build_parser(), list[str]()
    for page, command in examples():
        try:
            parser.parse_args(shlex.split(command)[1:])
        except SystemExit as error:
            wrong += [f"{page}: {command}: {capsys.readouterr().err.splitlines()[-1]}"] if error.code else []
    assert not wrong
    assert {page for page, _ in examples()} > {"README.md", "fleet.md", "web.md", "exporter.md", "where.md", "past.md"}
    assert len(examples()) > 40


def test_an_end_without_harm_to_others_is_a_rule_and_no_promise() -> None:
    """A real server faulted as it ended a client in an endless kernel, and took its neighbours (fact 61)."""
    pages = [ROOT / "docs/mps.md", ROOT / "docs/recipes.md", *(ROOT / "deploy").rglob("*.y*ml")]
    for page in pages:
        text = " ".join(page.read_text().split())
        for said in re.finditer(r"without harm|harms nobody|its neighbours run on", text):
            assert "as a rule" in text[max(0, said.start() - 12) : said.end() + 12], (page, said[0])


def test_no_link_of_the_site_is_dead_and_every_page_is_in_it(script: ModuleType, tmp_path: Path) -> None:
    site = tmp_path / "site"
    script.stage(site)
    links = 0
    for page in site.rglob("*.md"):
        text = page.read_text()
        for target, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", re.sub(r"`[^`\n]*`", "", text)):
            if "://" in target or target.startswith("mailto:"):
                continue
            there = page.parent / target if target else page
            assert there.is_file(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(there.read_text()), f"{page.name}: {target}#{anchor}"
            links += 1
    assert links > 60
    made = yaml.safe_load(script.configure(site).read_text())
    assert set(re.findall(r"[\w-]+\.md", str(made["nav"]))) == {page.name for page in site.glob("*.md")}
