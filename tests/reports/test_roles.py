"""Nodes of several roles have colours that can be read in both themes, and a legend; of one role there is none."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.verdict import Verdict
from assay.reports.model import read_report
from assay.reports.page import render_html
from assay.reports.palette import DARK, LIGHT, ROLE_TONES, get_role_tone
from assay.reports.roles import Roles, read_roles

from helpers.run_folders import finding, judgement, ordinary, write_run

NODES = {"n1": "server", "n2": "server", "sentinel1": "sentinel", "n3": "server"}
READABLE = 4.5
"""The contrast that WCAG 2 asks for of text of this size."""


def channels(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]


def mixed(over: str, under: str, share: float) -> list[float]:
    """As ``color-mix`` in sRGB with transparent, over a card."""
    return [share * top + (1 - share) * low for top, low in zip(channels(over), channels(under), strict=True)]


def luminance(colour: list[float]) -> float:
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour]
    return sum(part * one for part, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: list[float], other: list[float]) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("number", range(ROLE_TONES))
def test_every_tone_is_readable_wherever_a_node_is_named(palette: dict[str, str], number: int) -> None:
    node_tone = channels(palette[get_role_tone(number)])
    chip = mixed(palette["fault"], palette["card"], 0.55)
    for ground in (channels(palette["card"]), channels(palette["code"]), channels(palette["page"]), chip):
        assert contrast(node_tone, ground) >= READABLE


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_tones_differ(palette: dict[str, str]) -> None:
    tones = [channels(palette[get_role_tone(number)]) for number in range(ROLE_TONES)]
    for one, other in combinations(tones, 2):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.1


def test_roles_are_told_apart_in_the_order_of_their_nodes() -> None:
    roles = read_roles({"nodes": NODES})
    assert roles.has_several
    assert roles.names == ("server", "sentinel")
    assert roles.nodes("server") == ("n1", "n2", "n3")
    assert [roles.node_tone(node) for node in ("n3", "sentinel1", "unheard")] == ["role0", "role1", None]
    assert roles.common_role(["n1", "n3"]) == "server"
    assert roles.common_role(["n1", "sentinel1"]) is None


@pytest.mark.parametrize("settings", [{}, {"nodes": None}, {"nodes": ["n1"]}, {"nodes": {"n1": 7}}])
def test_what_is_not_known_has_no_colour(settings: dict[str, object]) -> None:
    assert read_roles(settings) == Roles()
    assert not read_roles(settings).has_several


def drawn(folder: Path, nodes: dict[str, str]) -> str:
    run = write_run(folder, judgement(Verdict.FAIL, finding(20, 45)), ordinary(), origin={"loop": 0.0, "wall": 0.0})
    settings = msgspec.json.decode((run / "settings.json").read_bytes(), type=dict[str, object])
    (run / "settings.json").write_bytes(msgspec.json.encode({**settings, "nodes": nodes}))
    (run / "logs" / "sentinel1").mkdir()
    (run / "logs" / "sentinel1" / "process.log").write_text("   1.000000 INFO hello\n")
    return render_html(read_report(run))


def test_the_page_has_a_legend_and_names_nodes_in_their_colours(tmp_path: Path) -> None:
    text = drawn(tmp_path / "run", NODES)
    assert re.search(r'class="role0"><i class="swatch"></i> server</span> n1, n2, n3', text)
    assert re.search(r'class="role1"><i class="swatch"></i> sentinel</span> sentinel1', text)
    assert text.count('<span class="role0">n3</span>') >= 3, "the leader then, the fault's chip, the faults' table"
    data = re.search(r'id="plot-data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    log = msgspec.json.decode(data[1], type=dict[str, object])["log"]
    assert isinstance(log, dict)
    assert dict(zip(log["nodes"], log["roles"], strict=True))["sentinel1"] == ["sentinel", "role1"]
    assert "on server" in data[1], "the legend of the faults on the timeline"


def test_of_one_role_there_is_nothing_to_tell_apart(tmp_path: Path) -> None:
    text = drawn(tmp_path / "run", dict.fromkeys(NODES, "server"))
    assert 'id="roles"' not in text
    assert 'class="role' not in text
    assert "on server" not in text
