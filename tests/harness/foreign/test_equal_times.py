"""Entries of equal times under ``--order=time``: no operation counts as before another unless the times say so."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.foreign.entry_order import MISSING, EntryOrder, EntryTimes
from assay.harness.foreign.source import TextPosition

from helpers.examples import some_of

FIRST = ["0 invoke write 1 0", "0 ok write 1 5", "1 invoke read nil 5", "1 ok read nil 7"]
CHAINS = [
    "0 invoke write 1 0", "0 ok write 1 5", "0 invoke write 2 5", "0 ok write 2 5",
    "1 invoke read nil 2", "1 ok read 1 5", "1 invoke read nil 5", "1 ok read 2 9",
]  # fmt: skip


def to_edn(lines: list[str]) -> str:
    words = (line.split() for line in lines)
    return "".join(
        f"{{:process {process}, :type :{kind}, :f :{f}, :value {value}, :time {time}}}\n"
        for process, kind, f, value, time in words
    )


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_a_read_that_begins_when_a_write_ends_may_miss_it(order: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text(to_edn([line for process in order for line in FIRST if line[0] == str(process)]))
    assert main(["check", str(path), "--model=register", "--order=time"]) == ExitCode.PASS
    later = [line.replace("read nil 5", "read nil 6") for line in FIRST]
    path.write_text(to_edn(later))
    assert main(["check", str(path), "--model=register", "--order=time"]) == ExitCode.FAIL


def test_no_order_is_claimed_if_each_would_put_an_operation_before_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(to_edn(CHAINS))
    assert main(["check", str(path), "--model=register", "--order=time"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "at 5 ns, several processes end an operation and call the next one, so the order of real time is" in said
    assert "--order=file if one recorder" in said
    path.write_text(to_edn([CHAINS[line] for line in (0, 4, 5, 1, 2, 3, 6, 7)]))
    assert main(["check", str(path), "--model=register", "--order=file"]) == ExitCode.PASS


@given(st.integers(0, 2**32))
@settings(max_examples=some_of(2000), deadline=None)
def test_stamps_order_only_what_times_or_a_process_order(seed: int) -> None:
    rng = random.Random(seed)
    times = EntryTimes(Path("h.edn"), EntryOrder.TIME)
    calls: list[int] = []
    returns: list[int] = []
    owners: list[int] = []
    entries: list[tuple[int, int]] = []
    for process in range(rng.randint(1, 3)):  # process by process: the lines may have any order
        now = 0
        for _ in range(rng.randint(1, 3)):
            owners.append(process)
            is_open = rng.random() < 0.1
            for positions in (calls, returns):
                now += rng.randint(0, 2)
                if positions is returns and is_open:
                    positions.append(MISSING)
                    continue
                positions.append(len(entries))
                entries.append((process, now))
                times.add(TextPosition(len(entries), 1), process, now, nemesis=False)
            if is_open:  # a process has one open call at a time
                break
    stamps, order, by_time = times.choose_order(calls, returns, owners, numbered=False)
    assert by_time
    assert len(set(stamps)) == len(stamps)
    at = [time for _, time in entries]
    assert all(stamps[i] < stamps[j] for i in range(len(at)) for j in range(len(at)) if at[i] < at[j])
    for i, (process, _) in enumerate(entries):
        assert all(stamps[i] < stamps[j] for j in range(i + 1, len(entries)) if entries[j][0] == process)
    claimed = [
        (ret, call)
        for ret, process in zip(returns, owners, strict=True)
        for call, other in zip(calls, owners, strict=True)
        if ret != MISSING and process != other and at[ret] == at[call] and stamps[ret] < stamps[call]
    ]
    chains = {
        time: {
            process
            for ret, process in zip(returns, owners, strict=True)
            for call, other in zip(calls, owners, strict=True)
            if ret != MISSING and process == other and ret < call and at[ret] == at[call] == time
        }
        for time in at
    }
    assert order.is_real_time == all(len(processes) < 2 for processes in chains.values())
    assert not (order.is_real_time and claimed)
