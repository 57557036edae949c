"""The page: says what there is, loads nothing, and executes nothing that a system under test wrote."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.sensitivity import NotPlanted, PlantedShare, Sensitivity
from assay.checkers.judging.verdict import LONGEST_LIST, Verdict
from assay.harness.core.operation import Outcome
from assay.reports import page as page_module
from assay.reports.files import SHRINKING, Shrinking
from assay.reports.html import shorten_middle
from assay.reports.page import render
from assay.reports.panel import to_label

from helpers.run_folders import (
    CLAIM,
    COMMAND,
    HOSTILE,
    completed,
    finding,
    hostile_run,
    judgement,
    ordinary,
    write_run,
)

pytestmark = pytest.mark.slow

BASE64 = set(string.ascii_letters + string.digits + "+/=")
LOADING = {"src", "href", "srcset", "poster", "action", "data", "background"}


class Parsed(HTMLParser):
    """Elements, what they would load, scripts, inline handlers, and the text that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.policy = ""
        self.texts: list[str] = []
        self._script: str | None = None
        self._silent = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.loaded += [value or "" for name, value in attrs if name in LOADING and not (value or "").startswith("#")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "meta" and named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""
        self._silent += tag in ("script", "style")
        if tag == "script":
            self._script = named.get("type") or "script"

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts.append((self._script, data))
        elif not self._silent:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def parsed(run: Path) -> Parsed:
    return Parsed(render(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that failed, with its page, for tests that only read."""
    run = write_run(tmp_path_factory.mktemp("red") / "run", judgement(Verdict.FAIL, finding(20, 45)), ordinary())
    render(run)
    return run


@pytest.fixture(scope="module")
def red_page(red: Path) -> Parsed:
    return Parsed((red / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Parsed:
    return parsed(hostile_run(tmp_path_factory.mktemp("hostile") / "run"))


@pytest.fixture
def words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plot is not written, which takes a third of a page's time. For tests that read the text beside it."""
    monkeypatch.setattr(page_module, "json_item", lambda *_: {})


WORDS = pytest.mark.usefixtures("words_alone")


@WORDS
def test_a_page_says_what_the_run_would_have_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())
    assert "What this run would have shown" not in parsed(run).text
    share = PlantedShare(
        anomaly="lost-write", meaning="an acknowledged record is lost", claims=40, exposed=20, planted=30, caught=15,
        planted_exposed=30, caught_exposed=29, missed="<b>offset 3</b> of k: no one read it",
        escaped=("k: offset 7",),
    )  # fmt: skip
    measured = Sensitivity(
        shares=(share,), not_planted=(NotPlanted("no-recovery", "it is about a deadline"),), seed=0, seconds=1.0,
        judging_seconds=1.0, copies=60, left_out="of 9 objects, 4 were looked at",
    )  # fmt: skip
    (run / "sensitivity.json").write_bytes(msgspec.json.encode(measured))
    shown = parsed(run)
    section = shown.text.partition("What this run would have shown")[2]
    for words in (
        "50 % of 30 (33 to 67 %)", "an acknowledged record is lost", "<b>offset 3</b> of k: no one read it",
        "Not found, although the history shows it: k: offset 7", "1 anomaly for which nothing was planted",
        "it is about a deadline: no-recovery", "The run is large: of 9 objects, 4 were looked at.",
    ):  # fmt: skip
        assert words in section, words
    (run / "sensitivity.json").write_text('{"shares": []')
    damaged = parsed(run).text
    assert "What this run would have shown" not in damaged
    assert "sensitivity.json" in damaged, "what cannot be read is named"


def test_a_red_run_shows_claim_operations_faults_and_the_repeat_command(red_page: Parsed) -> None:
    text = red_page.text
    assert text.count(CLAIM.capitalize()) == 2, "as the lead, and with its operations"
    assert COMMAND in text
    assert "kill leader of orders-3 on n3, from 2.000 s at the latest to 3.000 s" in text
    assert "leader then n3 , epoch 0" in text
    assert '20 2 send orders-3 [20] ok {"offset":20} 2.000 s 2.004 s' in text
    assert "45 0 poll orders-3 [45] ok" in text
    assert "3 more operations are involved." in text


@WORDS
def test_times_that_tie_are_shown_to_the_microsecond_in_chips_too(tmp_path: Path) -> None:
    for name, since in (("apart", 1_900_000_000), ("tied", 2_000_100_000)):
        one = msgspec.structs.replace(finding(20, 45), since=since, until=4_500_000_000)
        text = parsed(write_run(tmp_path / name, judgement(Verdict.FAIL, one), ordinary())).text
        digits = "" if name == "apart" else "000"
        assert f"kill leader of orders-3 on n3, from 2.000{digits} s at the latest to 3.000{digits} s" in text
        assert f"between {'1.900' if name == 'apart' else '2.000100'} s and 4.500{digits} s" in text
        assert f'[20] ok {{"offset":20}} 2.000{digits} s 2.004{digits} s' in text


@WORDS
def test_the_longest_list_unfolds(tmp_path: Path) -> None:
    few, many = range(LONGEST_LIST), range(LONGEST_LIST + 4)
    text = parsed(write_run(tmp_path / "few", judgement(Verdict.FAIL, finding(*few)), ordinary())).text
    assert "4 more operations" not in text
    text = parsed(write_run(tmp_path / "many", judgement(Verdict.FAIL, finding(*many)), ordinary())).text
    assert text.index(f"send orders-3 [{LONGEST_LIST - 2}]") < text.index("4 more operations")
    assert text.index("4 more operations") < text.index(f"send orders-3 [{LONGEST_LIST + 2}]")


@WORDS
def test_a_green_run_says_what_was_checked_and_what_not(tmp_path: Path) -> None:
    text = parsed(write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())).text
    assert "No anomaly in 60 operations, under 1 fault; 2 checks had data." in text
    assert "lost-write none found forbidden 40" in text
    assert "vanished no data forbidden 0" in text
    assert "phantom not judged forbidden 0" in text
    assert "Findings" not in text
    assert "ack-before-replication" in text
    assert "no engine answers" in text, "a fall-back of the cluster"


@WORDS
def test_an_unknown_run_leads_with_its_reasons(tmp_path: Path) -> None:
    reasons = ("only 0 operations succeeded during fault 1", "vanished had no data")
    page = parsed(write_run(tmp_path / "run", judgement(Verdict.UNKNOWN, unknown=reasons), ordinary()))
    assert "Why the verdict is unknown" in page.text
    assert page.text.count(reasons[0][1:]) == 2
    assert page.text.count(reasons[1]) == 1


@WORDS
@pytest.mark.parametrize("verdict", [pytest.param(Verdict.PASS, marks=pytest.mark.long), Verdict.FAIL, Verdict.UNKNOWN])
def test_warnings_are_on_the_page_whatever_the_verdict(tmp_path: Path, verdict: Verdict) -> None:
    said = "worker w3: OSError, 212 in a row since 15.0 s"
    found = judgement(verdict, *([finding(1)] if verdict is Verdict.FAIL else []))
    text = parsed(write_run(tmp_path / "warned", msgspec.structs.replace(found, warnings=(said,)), ordinary())).text
    assert f"warning: {said}" in text
    assert "warning:" not in parsed(write_run(tmp_path / "sound", found, ordinary())).text


@pytest.mark.parametrize("operations", [None, [], ordinary(5)])
def test_a_run_cut_short_still_has_a_page(tmp_path: Path, operations: list[object] | None) -> None:
    run = write_run(tmp_path / "run", None, operations, close=False, status="interrupted", problem="second Ctrl-C")  # type: ignore[arg-type]
    text = parsed(run).text
    assert "No verdict" in text
    assert "the run's status is interrupted" in text
    assert "second Ctrl-C" in text


def test_no_value_becomes_markup(hostile_page: Parsed, red_page: Parsed) -> None:
    harmless, page = red_page, hostile_page
    assert page.handlers == []
    assert "img" not in page.tags
    assert page.tags.count("script") == harmless.tags.count("script")
    assert HOSTILE in page.text
    for kind, script in page.scripts:
        if kind == "application/json":
            assert "<" not in script
            json.loads(script)
        elif kind == "application/octet-stream":
            assert set(script) <= BASE64
        else:
            assert "onerror=alert" not in script


def test_a_megabyte_of_random_bytes_and_names_from_right_to_left_are_cut_text(
    tmp_path: Path, red: Path, red_page: Parsed
) -> None:
    noise = random.Random(1).randbytes(1_000_000).decode("latin-1")
    rows = ordinary()
    rows[20] = completed(20, rows[20].call, argument=noise, result={"v": noise}, key="מפתח")
    rows[45] = completed(45, rows[45].call, argument=HOSTILE, key="مفتاح", f="\u202ekill", error=noise,
                         outcome=Outcome.FAIL)  # fmt: skip
    verdict = judgement(Verdict.FAIL, finding(20, 45, claim=noise, key="מפתח"))
    folder = write_run(tmp_path / "noisy", verdict, rows, problem=noise)
    page = parsed(folder)
    assert (folder / "report.html").stat().st_size < (red / "report.html").stat().st_size + 100_000
    assert page.handlers == []
    assert page.tags.count("script") == red_page.tags.count("script") - 1, "so long a history is not in the page"
    hiding = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    data = "".join(script for kind, script in page.scripts if kind == "application/json")
    assert not re.search(hiding, page.text + data)
    assert "מפתח" in page.text
    assert "\\u202ekill" in page.text


def test_nothing_is_loaded_from_anywhere(red_page: Parsed) -> None:
    page = red_page
    assert page.loaded == []
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(page.tags)
    assert "default-src 'none'" in page.policy
    style = (Path(__file__).parents[2] / "reports" / "style.css").read_text()
    assert "url(" not in style
    assert "@import" not in style


def test_only_the_pages_own_scripts_may_run(hostile_page: Parsed) -> None:
    page = hostile_page
    run = [script for kind, script in page.scripts if kind == "script"]
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in run}
    assert set(re.findall(r"'sha256-([^']+)'", page.policy)) == hashes
    assert "unsafe-eval" not in page.policy
    assert re.search(r"script-src [^;]*unsafe-inline", page.policy) is None


@WORDS
def test_findings_of_many_partitions_are_one_row_that_opens(tmp_path: Path) -> None:
    many = [
        finding(20, claim=f"replica n{number % 3} of offsets-{number} is behind", key=f"offsets-{number}")
        for number in range(30)
    ]
    page = parsed(write_run(tmp_path / "run", judgement(Verdict.FAIL, *many), ordinary()))
    assert "29 more like it, of offsets-1, offsets-2, offsets-3 and 26 more" in page.text
    assert "more of these" not in page.text
    reasons = tuple(f"the drain did not reach a sentinel in orders-{number}" for number in range(10))
    text = parsed(write_run(tmp_path / "unknown", judgement(Verdict.UNKNOWN, unknown=reasons), ordinary())).text
    assert text.count("9 more like it") == 1


@WORDS
def test_what_stands_beneath_a_finding_is_folded_too(tmp_path: Path) -> None:
    first = finding(20, 45)
    beneath = [
        msgspec.structs.replace(
            finding(20, claim=f"offset {number} was read twice", anomaly="duplicate"), same_cause_as=0
        )
        for number in range(16)
    ]
    text = parsed(write_run(tmp_path / "run", judgement(Verdict.FAIL, first, *beneath), ordinary())).text
    assert text.count("Also seen as duplicate") == 1
    assert "15 more like it Offset 1 was read twice" in text


def test_one_operation_is_singular_and_none_is_plural(tmp_path: Path) -> None:
    one = judgement(Verdict.PASS, operations=1, effects=0)
    text = parsed(write_run(tmp_path / "run", one, ordinary()[:1])).text
    assert "1 operation with 0 effects, judged by duckdb" in text
    assert "The one operation is drawn." in text


def test_a_finding_says_when_its_contradiction_occurred_first(tmp_path: Path) -> None:
    """The second finding occurred before the first one, and neither names the operation that showed it."""
    later, earlier = (
        msgspec.structs.replace(finding(20, 45, key=key), first_time=time * 10**6, first_operation=op)
        for key, time, op in (("a", 900, 12), ("b", 700, 8))
    )
    text = parsed(write_run(tmp_path / "run", judgement(Verdict.FAIL, later, earlier), ordinary())).text
    assert text.count("It occurred first at 0.700 s, in operation 8.") == 1
    assert text.count("occurred first at 0.900 s, in operation 12") == 1


def test_a_long_name_is_shortened_in_its_middle_and_whole_on_hover(tmp_path: Path) -> None:
    key = "payments." + "x" * 40 + ".retries-17"
    rows = [completed(0, 0, key=key)]
    run = write_run(tmp_path / "run", judgement(Verdict.FAIL, finding(0, key=key)), rows, faults=False)
    page = render(run).read_text()
    assert f'title="{key}">{shorten_middle(key)}<' in page
    assert (shorten_middle(key)[:9], shorten_middle(key)[-11:], len(shorten_middle(key))) == (
        "payments.",
        ".retries-17",
        26,
    )
    assert shorten_middle("orders-12") == "orders-12"


@WORDS
def test_how_a_schedule_was_made_small_is_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", judgement(Verdict.FAIL, finding(20, 45)), ordinary())
    story = Shrinking(
        runs=34,
        kept=("4.5 s kill n1",),
        left_out=("1 s stop n2", "9 s <b>"),
        first="5 of 5",
        last="4 of 5",
        minimal=True,
    )
    (run / SHRINKING).write_bytes(msgspec.json.encode(story))
    text = parsed(run).text
    assert "Made small in 34 runs: 1 of 3 steps are needed" in text
    assert "The original run failed 5 of 5. The shrunk run fails 4 of 5." in text
    assert "What stayed needed 4.5 s kill n1" in text
    assert "What was left out 1 s stop n2 9 s <b>" in text
    (run / SHRINKING).write_text("{")
    assert "shrinking.json cannot be read" in parsed(run).text


@WORDS
def test_the_last_green_run_stands_beside_a_red_one(tmp_path: Path) -> None:
    write_run(tmp_path / "1 #", judgement(Verdict.PASS), ordinary())
    page = parsed(write_run(tmp_path / "2", judgement(Verdict.FAIL, finding(20, 45)), ordinary()))
    assert "Beside the last run of this cell that passed" in page.text
    assert page.loaded == ["../1%20%23/report.html"]
    assert "kill 1 1 1 1 0.250 s 0.250 s" in page.text


def test_the_page_is_replaced_in_one_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())
    (run / "report.html").write_text("old")
    before = (run / "report.html").stat().st_ino
    assert render(run) == run / "report.html"
    assert (run / "report.html").stat().st_ino != before
    assert not list(run.glob(".report*"))


def test_labels_hold_no_mathematics_and_are_short() -> None:
    assert "$$" not in to_label("$$x$$")
    assert "\\(" not in to_label(r"\(x\)")
    assert to_label("a\nb " + "c" * 30 + "-17") == "a b ccc…cccc-17"
    assert to_label("orders-12") == "orders-12"
