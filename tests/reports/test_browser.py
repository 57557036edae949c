"""The page in a real browser: drawn, without a complaint, and deaf to what a hostile system wrote."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.reports.page import render

from helpers.accessibility import tab_stops, violations
from helpers.browser import asked_for, complaints, wait
from helpers.nightly import some_by_day
from helpers.run_folders import CLAIM, finding, hostile_run, judgement, ordinary, write_run
from helpers.served import serving

pytestmark = pytest.mark.browser


def open_page(browser: Any, page: Path) -> list[str]:
    """Waits until the plot is drawn; what the console complained about."""
    browser.get_log("browser")
    browser.get(page.as_uri())
    wait(browser, "return document.documentElement.dataset.plot === 'ready'")
    return complaints(browser)


@pytest.fixture(scope="module")
def red_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("red") / "run"
    return render(write_run(folder, judgement(Verdict.FAIL, finding(20, 45)), ordinary()))


def test_the_page_asks_for_nothing_but_itself(browser: Any, red_page: Path) -> None:
    asked_for(browser)
    open_page(browser, red_page)
    browser.execute_script("document.querySelector('[data-action=finding]').click()")
    browser.execute_script("document.querySelector('[data-action=edn]').click()")
    asked = asked_for(browser)
    assert red_page.as_uri() in asked
    assert {urlsplit(one).scheme for one in asked} <= {"file", "data", "blob"}


def test_the_plot_is_drawn_and_the_finding_is_visible(browser: Any, red_page: Path) -> None:
    assert open_page(browser, red_page) == []
    assert browser.find_element("css selector", ".badge").text == "Fail"
    claim = browser.find_element("css selector", ".finding[open] .claim")
    assert claim.is_displayed()
    assert claim.text == CLAIM.capitalize()
    assert len(browser.find_elements("css selector", ".finding[open] tbody tr")) == 2
    frames = browser.execute_script(
        "const all = root => [...root.querySelectorAll('*')].flatMap("
        "  one => [...(one.localName === 'canvas' ? [one] : []), ...(one.shadowRoot ? all(one.shadowRoot) : [])]);"
        "return all(document.getElementById('plot')).map(one => [one.width, one.height])"
    )
    assert sum(1 for width, height in frames if width > 800 and height > 50) >= 5


def test_a_finding_is_shown_close_and_the_whole_run_comes_back(browser: Any, red_page: Path) -> None:
    open_page(browser, red_page)
    view = (
        "const data = JSON.parse(document.getElementById('plot-data').textContent);"
        "const axis = Bokeh.documents[0].get_model_by_id(data.axis);"
        "const named = Bokeh.documents[0].get_model_by_id(data.named);"
        "return [axis.start, axis.end, named.selected.indices]"
    )
    whole = browser.execute_script(view)
    assert whole[0] <= 0
    assert whole[1] >= 5.9
    browser.execute_script("document.querySelector('[data-action=finding]').click()")
    start, stop, rows = browser.execute_script(view)
    assert 0 < start < 2.0
    assert 4.504 < stop < whole[1]
    assert rows == [0, 1]
    browser.execute_script("document.querySelector('[data-action=all]').click()")
    assert browser.execute_script(view) == [*whole[:2], []]


def test_the_theme_changes_page_and_plot(browser: Any, red_page: Path) -> None:
    open_page(browser, red_page)
    colours = (
        "const data = JSON.parse(document.getElementById('plot-data').textContent);"
        "const [id, property] = data.colours.find(one => one[2] === 'grid');"
        "return [getComputedStyle(document.body).backgroundColor,"
        "  Bokeh.documents[0].get_model_by_id(id)[property]]"
    )
    before = browser.execute_script(colours)
    browser.execute_script("document.querySelector('[data-action=theme]').click()")
    after = browser.execute_script(colours)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_hostile_values_run_nothing(browser: Any, tmp_path: Path) -> None:
    assert open_page(browser, render(hostile_run(tmp_path / "run"))) == []
    assert browser.execute_script("return [window.pwned === undefined, document.images.length]") == [True, 0]


def test_a_click_on_the_timeline_shows_what_the_nodes_said_then(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    folder = write_run(
        tmp_path / "run", judgement(Verdict.FAIL, finding(20, 45)), ordinary(), origin={"loop": 10.0, "wall": 0.0}
    )
    (folder / "logs" / "n2").mkdir()
    (folder / "logs" / "n2" / "process.log").write_text(
        "".join(f"{10 + number / 10:11.6f} INFO line {number} <b>&amp;\n" for number in range(60))
    )
    assert open_page(browser, render(folder)) == []
    state = (
        "const data = JSON.parse(document.getElementById('plot-data').textContent);"
        "const rows = [...document.querySelectorAll('#lines tr')];"
        "return [document.getElementById('moment').textContent,"
        "  data.chosen.map(id => Bokeh.documents[0].get_model_by_id(id).location),"
        "  rows.length, document.querySelector('#lines tr.now').textContent]"
    )
    moment, lines, shown, now = browser.execute_script(state)
    assert (moment, shown) == ("2.004 s", 40), "the first finding's"
    assert len(lines) >= 5
    assert set(lines) == {2.004}
    assert now == "2.100n2INFO line 21 <b>&amp;"
    plot = browser.find_element("id", "plot")
    browser.execute_script("arguments[0].scrollIntoView()", plot)
    ActionChains(browser).move_to_element_with_offset(plot, 0, -plot.size["height"] // 2 + 130).click().perform()
    clicked, lines, _, now = browser.execute_script(state)
    assert 2.5 < float(clicked.split()[0]) < 3.5, "the middle of the plot"
    assert len(set(lines)) == 1
    assert f"{lines[0]:.3f} s" == clicked
    assert float(now[:5]) >= lines[0]
    browser.execute_script(
        "const one = document.getElementById('speaker'); one.value = [...one.options].find("
        "  option => option.text === 'n3').value; one.dispatchEvent(new Event('change'))"
    )
    assert browser.execute_script(
        "return [...document.querySelectorAll('#lines tr')].map(row => row.cells[1].textContent)"
    ) == ["n3"]


def test_an_address_leads_to_its_moment_and_operation(browser: Any, red_page: Path) -> None:
    browser.get("about:blank")
    browser.get(f"{red_page.as_uri()}#t=4.5&op=45")
    wait(browser, "return document.documentElement.dataset.plot === 'ready'")
    view = (
        "const data = JSON.parse(document.getElementById('plot-data').textContent);"
        "const axis = Bokeh.documents[0].get_model_by_id(data.axis);"
        "const named = Bokeh.documents[0].get_model_by_id(data.named);"
        "return [axis.start, axis.end, named.selected.indices,"
        "  [...document.querySelectorAll('tr.sought')].map(row => row.firstElementChild.textContent)]"
    )
    start, stop, rows, sought = browser.execute_script(view)
    assert 3 < start < 4.5 < stop < 6
    assert (rows, sought) == ([1], ["45"])
    row = browser.find_element("css selector", "tr.sought")
    assert row.is_displayed()
    browser.execute_script("document.querySelector('[data-op=\"20\"] a').click()")
    wait(browser, "return document.querySelector('tr.sought').firstElementChild.textContent === '20'")
    assert browser.execute_script(view)[2] == [0]


SENSELESS = ("t=abc&op=x", "op=99999", "t=1e999", "t=-5&op=%22%5D", "1-anomaly")


def test_the_chosen_moment_is_in_the_address(browser: Any, red_page: Path) -> None:
    open_page(browser, red_page)
    assert browser.execute_script("return location.hash") == ""
    browser.execute_script("document.querySelector('[data-action=finding]').click()")
    assert browser.execute_script("return location.hash") == "#t=2"


@pytest.mark.parametrize("address", some_by_day(SENSELESS, ("t=abc&op=x", "t=-5&op=%22%5D")))
def test_an_address_that_makes_no_sense_does_no_harm(browser: Any, red_page: Path, address: str) -> None:
    browser.get("about:blank")
    browser.get(f"{red_page.as_uri()}#{address}")
    wait(browser, "return document.documentElement.dataset.plot === 'ready'")
    assert complaints(browser) == []


def downloaded(browser: Any, place: Path) -> list[str]:
    """The lines of the history that a click has brought."""
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(place)})
    browser.execute_script("document.querySelector('[data-action=edn]').click()")
    end = time.monotonic() + 20
    while not (found := list(place.glob("*.edn"))):
        assert time.monotonic() < end, "it was not downloaded"
        time.sleep(0.05)
    return found[0].read_text().splitlines()


def test_a_report_that_is_served_is_in_a_sandbox_and_gives_its_history_all_the_same(
    browser: Any, red_page: Path, tmp_path: Path
) -> None:
    root = red_page.parents[1].resolve()
    with serving(root, lambda: SimpleNamespace(html="")) as port:
        asked_for(browser)
        browser.get(f"http://127.0.0.1:{port}/run/report.html")
        wait(browser, "return document.documentElement.dataset.plot === 'ready'")
        assert browser.execute_script("return self.origin") == "null", "an origin of its own: it can read nothing"
        assert len(downloaded(browser, tmp_path)) == 117
        assert {urlsplit(one).hostname for one in asked_for(browser)} <= {"127.0.0.1", None, ""}


def test_the_history_is_downloaded_as_edn(browser: Any, red_page: Path, tmp_path: Path) -> None:
    assert open_page(browser, red_page) == []
    lines = downloaded(browser, tmp_path)
    assert lines[0].startswith('{:index 0, :type :invoke, :process 0, :f :send, :key "orders-3", :value [0], :time 0')
    assert len(lines) == 117, "60 invocations, of which three were never answered"
    assert complaints(browser) == []


def test_on_paper_all_is_open_and_light(browser: Any, red_page: Path) -> None:
    open_page(browser, red_page)
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = browser.execute_script(folded)
    assert before > 0
    browser.execute_script("document.documentElement.dataset.theme = 'dark'; dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(folded) == 0
    assert browser.execute_script("return document.documentElement.dataset.theme") == "light"
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(folded) == before
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"


def in_theme(browser: Any, theme: str) -> None:
    browser.execute_script("if ((document.documentElement.dataset.theme ?? 'light') !== arguments[0])"
                           "  document.querySelector('[data-action=theme]').click()", theme)  # fmt: skip
    assert browser.execute_script("return document.documentElement.dataset.theme ?? 'light'") == theme


@pytest.fixture(scope="module")
def page_of_roles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Servers and a sentinel, whose log says no times; of one server's log there is no more than that."""
    folder = write_run(
        tmp_path_factory.mktemp("roles") / "run", judgement(Verdict.FAIL, finding(20, 45)), ordinary(),
        origin={"loop": 10.0, "wall": 0.0},
    )  # fmt: skip
    settings = json.loads((folder / "settings.json").read_text())
    nodes = {"n1": "server", "n2": "server", "n3": "server", "sentinel1": "sentinel"}
    (folder / "settings.json").write_text(json.dumps({**settings, "nodes": nodes}))
    for node, text in (("sentinel1", "switched over\n"), ("n1", "early\n   12.100000 INFO on\n"), ("n2", "never\n")):
        (folder / "logs" / node).mkdir()
        (folder / "logs" / node / "process.log").write_text(text)
    (folder / "logs" / "growth.json").write_text(json.dumps({"sentinel1": {"process.log": [(12.3, 14)]}}))
    return render(folder)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nodes_of_several_roles_are_told_apart_and_can_be_read(browser: Any, page_of_roles: Path, theme: str) -> None:
    assert open_page(browser, page_of_roles) == []
    in_theme(browser, theme)
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#lines tr.log')].map("
        "  row => [row.textContent, getComputedStyle(row.cells[1]).color])"
    )
    assert [text for text, _ in rows] == [
        "about 2.100n1early", "2.100n1INFO on", "by 2.300sentinel1switched over"
    ]  # fmt: skip
    legend = browser.execute_script(
        "return [...document.querySelectorAll('#roles dd > span')].map("
        "  one => [one.textContent.trim(), getComputedStyle(one).color])"
    )
    assert [name for name, _ in legend] == ["server", "sentinel"]
    assert [colour for _, colour in rows] == [legend[0][1], legend[0][1], legend[1][1]]
    assert legend[0][1] != legend[1][1]
    groups = "return [...document.querySelectorAll('#speaker optgroup')].map(one => [one.label, one.children.length])"
    assert browser.execute_script(groups) == [["server", 2], ["sentinel", 1]]
    assert "n2/process.log" in browser.find_element("id", "words").text


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", some_by_day(("red_page", "page_of_roles"), ("page_of_roles",)))
def test_axe_finds_nothing_to_complain_about(
    browser: Any, request: pytest.FixtureRequest, page: str, theme: str
) -> None:
    open_page(browser, request.getfixturevalue(page))
    in_theme(browser, theme)
    assert violations(browser) == []


@pytest.mark.long
def test_the_tab_key_goes_through_the_page_from_top_to_bottom(browser: Any, red_page: Path) -> None:
    open_page(browser, red_page)
    stops = tab_stops(browser, 40)
    assert len(stops) > 10
    assert stops == sorted(stops)
