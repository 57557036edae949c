"""The page of a store in a real browser: found, sorted, followed, by mouse and by keyboard, in light and dark."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from assay.harness.nightly.store_index import read_store
from assay.reports.index.known import KnownFailures
from assay.reports.index.page import render_page

from helpers.accessibility import tab_stops, violations
from helpers.browser import asked_for, complaints, wait
from helpers.morning_store import HOSTILE, LAST, Made, many, write
from helpers.nightly import by_night
from helpers.served import serving

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUNS = 600
ALONE, EACH = 200_000, 150
"""Bytes of the page at most: without any run, and for each. It had 359,529 of 1,992 runs and 1,152,433 of 10,000."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(many(tmp_path_factory.mktemp("large"), RUNS))


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(many(tmp_path_factory.mktemp("larger"), 1_500))


def written(root: Path) -> Path:
    target = root / "index.html"
    target.write_text(render_page(read_store(root, {}), KnownFailures(today=date(2026, 11, 24))).html, encoding="utf-8")
    return target


def opened(browser: Any, target: Path, state: str = "") -> list[str]:
    """Returns what the console complained about."""
    browser.get_log("browser")
    browser.get("about:blank")
    browser.get(target.as_uri() + state)
    wait(browser, "return document.documentElement.dataset.index === 'ready'")
    return complaints(browser)


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)", selector
    )
    return found


def search(browser: Any, words: str) -> None:
    field = browser.find_element("id", "words")
    field.clear()
    field.send_keys(words)


@pytest.mark.parametrize("runs", [RUNS, by_night(1_992), by_night(10_000)])
def test_thousands_of_runs_are_one_small_file_that_asks_for_nothing(
    browser: Any, large: Path, tmp_path: Path, runs: int
) -> None:
    target = large if runs == RUNS else written(many(tmp_path, runs))
    assert target.stat().st_size < ALONE + EACH * runs
    asked_for(browser)
    assert opened(browser, target) == []
    assert [one for one in asked_for(browser) if one != "about:blank"] == [target.as_uri()]
    assert texts(browser, "#found")[0].startswith(f"{len(read_store(target.parent, {}).entries):,} runs")
    assert len(texts(browser, "#list tbody tr")) == 100


def test_a_run_is_found_sorted_and_followed_to_its_report_and_its_command(browser: Any, large: Path) -> None:
    opened(browser, large)
    search(browser, "workload:test_log nemesis:power-loss verdict:fail")
    rows = texts(browser, "#list tbody tr")
    assert rows
    assert all("test_log" in row and "power-loss" in row and "lost-write" in row for row in rows)
    began = "#list tbody td:nth-child(2)"
    assert texts(browser, began) == sorted(texts(browser, began), reverse=True), "the newest first"
    browser.find_element("css selector", "[data-sort=began]").click()
    assert texts(browser, began) == sorted(texts(browser, began))
    assert browser.find_element("css selector", "[aria-sort=ascending]").text.strip() == "began (UTC)"
    button = browser.find_element("css selector", "#list tbody [data-action=copy]")
    assert "workloads/test_log.py::test_log --cluster=sim --nemesis=power-loss --seed=" in button.get_attribute("title")
    assert "\0" not in button.get_attribute("title")
    button.click()
    wait(browser, "return document.querySelector('#list tbody [data-action=copy]').textContent === 'copied'")
    for label in ("schedule", "report"):
        href = browser.execute_script(
            "return [...document.querySelectorAll('#list tbody a')].find(one => one.textContent === arguments[0]).href",
            label,
        )
        browser.get(href)
        assert ("the report" if label == "report" else "steps") in browser.page_source
        browser.back()


def test_a_cell_of_the_matrix_lists_its_runs_of_that_night(browser: Any, large: Path) -> None:
    opened(browser, large)
    cell = browser.find_element("css selector", '#tonight .cell[aria-label^="test_group, kill+partition"]')
    assert "fail" in cell.get_attribute("aria-label")
    assert cell.text.startswith("✗"), "not by its colour alone"
    browser.execute_script("arguments[0].click()", cell)
    rows = texts(browser, "#list tbody tr")
    assert rows
    assert all("2026-11-24" in row and "test_group" in row and "kill+partition" in row for row in rows)


def test_the_keyboard_alone_does_it(browser: Any, large: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, large)
    body = browser.find_element("tag name", "body")
    body.send_keys("/")
    active = "return document.activeElement"
    assert browser.execute_script(active).get_attribute("id") == "words"
    first = browser.execute_script("const one = document.querySelector('.matrix .cell'); one.focus(); return one")
    first.send_keys(Keys.ARROW_RIGHT)
    second = browser.execute_script(active)
    assert second.get_attribute("aria-label") != first.get_attribute("aria-label")
    second.send_keys(Keys.ARROW_DOWN)
    third = browser.execute_script(active)
    assert (
        third.get_attribute("aria-label").split(", ")[1].split(":")[0]
        == (second.get_attribute("aria-label").split(", ")[1].split(":")[0])
    )
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineWidth")
    assert float(outline.removesuffix("px")) >= 2, "the focus is visible"
    assert browser.execute_script("return document.querySelectorAll('.matrix [tabindex=\"0\"]').length") == 2
    assert not browser.execute_script(
        'return document.querySelectorAll(\'[tabindex]:not([tabindex="0"]):not([tabindex="-1"])\').length'
    )
    third.send_keys(Keys.ENTER)
    assert texts(browser, "#list tbody tr")


def test_a_cells_nights_are_drawn(browser: Any, tmp_path: Path) -> None:
    for day, (median, verdict) in enumerate([(2.0, "pass"), (4.0, "fail"), (1.0, "pass")]):
        write(tmp_path, Made(LAST + timedelta(days=day), verdict=verdict, figures={"median_ms": median}))
    opened(browser, written(tmp_path))
    bars = browser.execute_script(
        "return [...document.querySelectorAll('#plots rect')].map(one => [one.getAttribute('class'),"
        "  one.getBBox().height, one.firstChild.textContent])"
    )
    assert [name for name, _, _ in bars] == ["pass", "fail", "pass"]
    assert bars[1][1] > 2 * bars[0][1] > 0
    assert bars[1][2] == "2026-11-25: 1 fail"
    heights = browser.execute_script(
        "return document.querySelector('#plots td:nth-child(4) polyline.first').getAttribute('points')"
    )
    points = [tuple(map(float, point.split(","))) for point in heights.split()]
    assert [x for x, _ in points] == sorted({x for x, _ in points})
    assert points[1][1] < points[0][1] < points[2][1], "higher is slower"
    box = browser.execute_script("return document.querySelector('#plots polyline.first').getBoundingClientRect().width")
    assert box > 50, "and visible"


def test_a_run_that_is_written_while_the_page_is_open_appears(browser: Any, tmp_path: Path) -> None:
    write(tmp_path, Made())
    made = lambda: render_page(read_store(tmp_path, {}), KnownFailures(today=date(2026, 11, 24)), live=True)  # noqa: E731
    with serving(tmp_path.resolve(), made) as port:
        asked_for(browser)
        browser.get(f"http://127.0.0.1:{port}/")
        wait(browser, "return document.documentElement.dataset.index === 'ready'")
        assert texts(browser, "#found")[0].startswith("1 runs")
        write(tmp_path, Made(LAST + timedelta(minutes=1), verdict="fail", anomalies=("lost-write",)))
        wait(browser, "return (document.getElementById('found')?.textContent ?? '').startsWith('2 runs')")
        assert "lost-write" in texts(browser, "#new")[0]
        assert {urlsplit(one).hostname for one in asked_for(browser) if one.startswith("http")} == {"127.0.0.1"}


def test_the_state_is_in_the_address(browser: Any, large: Path) -> None:
    opened(browser, large)
    search(browser, "defect:no-fencing")
    state = browser.execute_script("return location.hash")
    listed = texts(browser, "#found")
    opened(browser, large, state)
    assert texts(browser, "#found") == listed
    assert not listed[0].startswith(f"{RUNS:,} runs")


def test_hostile_values_run_nothing(browser: Any, tmp_path: Path) -> None:
    hostile = Made(
        verdict="fail", anomalies=(HOSTILE,), workload="test_שלום", system=HOSTILE, command=HOSTILE, reason=HOSTILE
    )
    write(tmp_path, hostile)
    write(tmp_path, Made(LAST, verdict="unknown", reason=HOSTILE, cluster=HOSTILE, nemesis="‮kill"))
    assert opened(browser, written(tmp_path)) == []
    assert browser.execute_script("return [window.pwned === undefined, document.images.length]") == [True, 0]
    assert HOSTILE in browser.find_element("css selector", "#list tbody").text
    assert texts(browser, "#list tbody bdi:first-child").count("test_שלום") == 1


CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const parts = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data]; };
const light = ([r, g, b]) => [r, g, b].map(one => one / 255)
  .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
  .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
const ground = one => { for (; one; one = one.parentElement) {
  const found = parts(getComputedStyle(one).backgroundColor);
  if (found[3] === 255) return found; } return [255, 255, 255]; };
const poor = new Set();
for (const one of document.querySelectorAll('body *')) {
  const own = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || !one.checkVisibility() || one.closest('script, style, noscript')) continue;
  const [high, low] = [light(parts(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
  const ratio = (high + 0.05) / (low + 0.05);
  if (ratio < 4.5) poor.add(one.localName + '.' + one.className + ' ' + ratio.toFixed(2));
}
return [...poor];
"""
"""Text whose contrast with its ground is less than WCAG 2.2 asks for (AA, 1.4.3)."""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(browser: Any, larger: Path, theme: str) -> None:
    opened(browser, larger)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    assert browser.execute_script(CONTRAST) == []


def test_everything_to_be_used_has_a_name(browser: Any, larger: Path) -> None:
    opened(browser, larger)
    nameless = browser.execute_script(
        "return [...document.querySelectorAll('a, button, input, select, [role=img], table.matrix.grid')].filter(one =>"
        "  !(one.textContent.trim() || one.getAttribute('aria-label') || (one.labels && one.labels.length)))"
        ".map(one => one.outerHTML)"
    )
    assert nameless == []


def test_a_narrow_screen_needs_no_sideways_scrolling_of_the_page(browser: Any, larger: Path) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        opened(browser, larger)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 380
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_about(browser: Any, large: Path, theme: str) -> None:
    opened(browser, large)
    browser.execute_script("if ((document.documentElement.dataset.theme ?? 'light') !== arguments[0])"
                           "  document.querySelector('[data-action=theme]').click()", theme)  # fmt: skip
    assert browser.execute_script("return document.documentElement.dataset.theme ?? 'light'") == theme
    assert violations(browser) == []


@pytest.mark.long
def test_the_tab_key_goes_through_the_page_from_top_to_bottom(browser: Any, large: Path) -> None:
    opened(browser, large)
    stops = tab_stops(browser, 40)
    assert len(stops) > 10
    assert stops == sorted(stops)
