"""The screen of servers and namespaces, on a simulated daemon of MPS protocol 3 and on what a stranger writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ui.screen import make_app as plain_app
from ui.screen import text_of, until
from ui.snapshots import rich

from mpstui.core.v3 import Namespace, V3Client, V3Node, V3Server
from mpstui.ui.partitions.namespaces import NamespacesScreen, about, device_words, levels_of

from .fakes import applied, opened, press, served, typed


@pytest.fixture
def folder() -> Iterator[Path]:
    with served("v3") as place:
        yield place


@pytest.mark.slow
async def test_a_namespace_is_made_limited_and_deleted_by_keys(folder: Path) -> None:
    collector, app = opened(folder)

    def node() -> V3Node | None:
        return collector.snapshot.daemons[0].v3 if collector.snapshot and collector.snapshot.daemons else None

    async def apply() -> str:
        told = await applied(pilot)
        await press(pilot, "escape")
        return told

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: node() is not None and len(node().clients) == 4)
        await press(pilot, "P")
        assert isinstance(app.screen, NamespacesScreen)
        await until(pilot, lambda: "resnet50, --epochs 90" in text_of(app))
        text = text_of(app)
        assert "25 %, 8G" in text
        assert text.count("the server's limits do not apply") == 1, "only where the server has limits"
        await press(pilot, "A")
        assert re.search(r"Server +training", text_of(app)), "which server it acts on stands in the form"
        await typed(pilot, "mine")
        assert "whole GPU" in text_of(app)
        told = await apply()
        assert "namespace mine is there" in told
        assert str(folder / "node" / "training" / "mine") in told
        await until(pilot, lambda: node().namespace("training", "mine") is not None)
        await press(pilot, *"jjjjjjj")
        assert app.screen.row.space.name == "mine"
        await press(pilot, "l")
        assert re.search(r"Name +mine", text_of(app))
        assert re.search(r"Server +training", text_of(app))
        assert "Nothing is sent before Apply" in text_of(app), "what is not filled in yet is no mistake"
        await typed(pilot, "30")
        assert "in force: 30 %" in await apply()
        await until(pilot, lambda: node().namespace("training", "mine").active_thread_percentage == 30)
        await press(pilot, "x")
        assert "is gone" in await apply()
        await until(pilot, lambda: "mine" not in text_of(app))
        await press(pilot, "g", *"jjjjjjj")
        assert (app.screen.row.server.name, app.screen.row.space) == ("serving", None)
        await press(pilot, "P")
        await typed(pilot, "large")
        await press(pilot, "tab")
        await typed(pilot, "0")
        await press(pilot, "tab")
        await typed(pilot, "4")
        assert "partition large is there" in await apply()
        await until(pilot, lambda: any(part.name == "large" for part in node().partitions))
        await press(pilot, "j")
        assert app.screen.row.part.name == "large"
        assert "export CUDA_MPS_SM_PARTITION=" in text_of(app)
        await press(pilot, "x")
        assert re.search(r"server +serving", text_of(app))
        assert "is gone" in await apply()
        await press(pilot, "g", "x")
        assert str(node().clients[0].pid) in text_of(app), "whose work the end of a server takes is named"
        assert "server      training" in text_of(app)
        assert "waited for" not in text_of(app), "how it is done is settled, and nothing else is offered"
        await press(pilot, "down", "up")
        await press(pilot, "escape")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10)])
async def test_what_a_stranger_writes_is_text(size: tuple[int, int]) -> None:
    odd = V3Node(
        (V3Server("s" * 64, None, None, "[bold]x[/]", "/tmp/x; touch /tmp/owned"), V3Server("two")),
        (Namespace("n", "s" * 64), Namespace("default", "gone", active_thread_percentage=3.0)),
        (V3Client(7, "s" * 64, None, "unlisted", "[red]" + "x" * 5000), V3Client(8, "two", "0", None, None)),
        not_understood=("what, is, this",),
        not_read={"feature": "no"},
    )
    snapshot = rich()
    daemon = replace(snapshot.daemons[0], protocol="v3", v3=odd)
    app = plain_app(replace(snapshot, daemons=(daemon, *snapshot.daemons[1:])))
    async with app.run_test(size=size) as pilot:
        await pilot.press("P")
        assert isinstance(app.screen, NamespacesScreen)
        await pilot.press("y")
        assert app.clipboard == "export CUDA_MPS_PIPE_DIRECTORY='/tmp/x; touch /tmp/owned'", "one word for a shell"
        await pilot.press("j", "y", "j", "t", "y", "j")
        if size[0] >= 80:
            assert "[bold]x[/]" in text_of(app)
        if size[0] >= 120:
            assert "not understood: what, is, this" in text_of(app)


def test_a_device_has_its_index_and_name_first_and_an_unknown_one_the_daemons_word() -> None:
    snapshot = rich()
    first, second = snapshot.devices[:2]
    daemon = replace(snapshot.daemons[0], ordinals={"0": second.uuid})
    for text in (second.uuid, "0", f" {second.uuid}"):
        assert device_words(text, daemon, snapshot) == "GPU 1 H100 80GB HBM3"
    assert device_words(first.uuid, None, snapshot, uuid=True) == f"GPU 0 H100 80GB HBM3 {first.uuid}"
    assert [device_words(text, daemon, snapshot) for text in ("7", "MIG-x", "", None)] == ["7", "MIG-x", "—", "—"]
    node = V3Node((V3Server("one", allowed_devices=f"{first.uuid},{second.uuid}"),))
    said = [para.text for para in about(levels_of(node)[0], replace(daemon, v3=node), snapshot)]
    assert f"devices: GPU 0 H100 80GB HBM3 {first.uuid}, GPU 1 H100 80GB HBM3 {second.uuid}" in said
