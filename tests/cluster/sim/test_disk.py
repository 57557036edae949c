"""The simulated disk: a kill takes nothing, a power loss all that was not fsynced and no more."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.node import DiskChange, DiskErrorEffects
from assay.cluster.sim.disk import SimDisk
from assay.cluster.sim.filesystem import BLOCK
from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.runtime import Storage


def view(disk: SimDisk) -> Storage:
    """The structural match, which mypy proves."""
    storage: Storage = disk.storage(fsync_delay=lambda: 0)
    return storage


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.read(path) for path in disk.files()}


def test_another_process_sees_what_a_killed_one_wrote() -> None:
    disk = SimDisk(Random(0))
    view(disk).open("a").append(b"unsynced")
    assert view(disk).read_bytes("a") == b"unsynced"


def test_an_unsynced_tail_is_torn_at_any_byte_and_the_synced_part_stays() -> None:
    left = set()
    for seed in range(60):
        disk = SimDisk(Random(seed))

        async def scenario(disk: SimDisk = disk) -> None:
            storage = view(disk)
            file = storage.open("a")
            file.append(b"12")
            await file.fsync()
            await storage.fsync_directory("")
            file.append(b"345")

        asyncio.run(scenario())
        disk.cut_power()
        left.add(disk.read("a"))
    assert left == {b"12", b"123", b"1234", b"12345"}


def test_whole_blocks_of_an_unsynced_tail_may_be_missing_and_are_zeros() -> None:
    """Never a part of a block, nor the last one, nor one that was fsynced in part."""
    synced, tail = bytes([1]) * 700, bytes([2]) * 4000
    found = set()
    for seed in range(300):
        disk = SimDisk(Random(seed))

        async def scenario(disk: SimDisk = disk) -> None:
            storage = view(disk)
            file = storage.open("a")
            file.append(synced)
            await file.fsync()
            await storage.fsync_directory("")
            file.append(tail)

        asyncio.run(scenario())
        disk.cut_power()
        left = disk.read("a")
        assert left[: 2 * BLOCK] == (synced + tail)[: 2 * BLOCK][: len(left)]
        blocks = [left[begin : begin + BLOCK] for begin in range(2 * BLOCK, len(left), BLOCK)]
        assert all(set(block) in ({0}, {2}) for block in blocks)
        found.add(tuple(block[0] for block in blocks))
    holes = {shape for shape in found if 0 in shape}
    assert holes, "something is left behind one that is missing"
    assert all(shape[-1] == 2 for shape in found if shape)
    assert found - holes, "or none is missing"


def test_what_a_power_loss_could_take_is_what_was_appended_since_the_fsync_began_or_has_no_durable_name() -> None:
    disk = SimDisk(Random(0))

    async def scenario() -> None:
        storage = view(disk)
        file = storage.open("a")
        file.append(b"12")
        await file.fsync()
        assert disk.state("a").unsynced == 2, "its name is not durable"
        await storage.fsync_directory("")
        assert disk.state("a").unsynced == 0
        file.append(b"345")
        syncing = asyncio.create_task(file.fsync())
        await asyncio.sleep(0)
        file.append(b"6")
        assert disk.state("a").unsynced == 4
        await syncing
        assert disk.state("a").unsynced == 1

    asyncio.run(scenario())


def test_an_unsynced_cut_is_there_or_undone_as_a_whole() -> None:
    left = set()
    for seed in range(100):
        disk = SimDisk(Random(seed))
        disk.write("a", b"123456")
        file = view(disk).open("a")
        file.truncate(4)
        file.truncate(2)
        file.append(b"x")
        disk.cut_power()
        left.add(disk.read("a"))
    assert left == {b"123456", b"12", b"12x"}


def test_fsync_covers_what_was_there_at_the_call_and_nothing_later() -> None:
    left = set()
    for seed in range(60):
        disk = SimDisk(Random(seed))
        disk.write("a", b"")

        async def scenario(disk: SimDisk = disk) -> None:
            file = view(disk).open("a")
            file.append(b"1234")
            pending = asyncio.ensure_future(file.fsync())
            await asyncio.sleep(0)
            file.truncate(2)
            file.append(b"x")
            await pending

        asyncio.run(scenario())
        disk.cut_power()
        left.add(disk.read("a"))
    assert left == {b"1234", b"12", b"12x"}


def test_an_earlier_fsync_that_ends_later_takes_nothing_back() -> None:
    async def scenario(disk: SimDisk) -> None:
        slow = disk.storage(fsync_delay=lambda: 0.01).open("a")
        slow.append(b"1")
        quick = disk.storage(fsync_delay=lambda: 0).open("a")
        pending = asyncio.ensure_future(slow.fsync())
        await asyncio.sleep(0)
        quick.append(b"2")
        await quick.fsync()
        await pending

    for seed in range(10):
        disk = SimDisk(Random(seed))
        disk.write("a", b"")
        asyncio.run(scenario(disk))
        disk.cut_power()
        assert disk.read("a") == b"12"


def test_a_cancelled_fsync_promises_nothing() -> None:
    left = set()
    for seed in range(40):
        disk = SimDisk(Random(seed))
        disk.write("a", b"")

        async def scenario(disk: SimDisk = disk) -> None:
            file = disk.storage(fsync_delay=lambda: 60).open("a")
            file.append(b"1")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(file.fsync(), 0.001)

        asyncio.run(scenario())
        disk.cut_power()
        left.add(disk.read("a"))
    assert left == {b"", b"1"}


def test_names_not_fsynced_may_be_undone_in_order_and_fsynced_ones_stay() -> None:
    left = set()
    for seed in range(100):
        disk = SimDisk(Random(seed))
        disk.write("old", b"old")

        async def scenario(disk: SimDisk = disk) -> None:
            storage = view(disk)
            storage.write_bytes("kept", b"kept")
            await storage.fsync("kept")
            await storage.fsync_directory("")
            storage.write_bytes("new", b"new")
            await storage.fsync("new")
            storage.rename("new", "old")
            storage.remove("kept")

        asyncio.run(scenario())
        disk.cut_power()
        left.add(tuple(sorted(contents(disk).items())))
    assert left == {
        (("kept", b"kept"), ("old", b"old")),
        (("kept", b"kept"), ("new", b"new"), ("old", b"old")),
        (("kept", b"kept"), ("old", b"new")),
        (("old", b"new"),),
    }


def test_a_rename_between_folders_is_in_both_or_in_neither_and_fsync_of_one_is_enough() -> None:
    for seed in range(60):
        disk = SimDisk(Random(seed))
        disk.write("a/x", b"x")
        disk.write("b/y", b"y")
        view(disk).rename("a/x", "b/x")
        disk.cut_power()
        assert disk.files() in (["a/x", "b/y"], ["b/x", "b/y"])
        storage = view(disk)
        if storage.exists("a/x"):
            storage.rename("a/x", "b/x")
        asyncio.run(storage.fsync_directory("a"))
        disk.cut_power()
        assert disk.files() == ["b/x", "b/y"]


def test_a_removed_folder_may_come_back_with_what_is_left_in_it() -> None:
    left = set()
    for seed in range(100):
        disk = SimDisk(Random(seed))
        disk.write("t/a", b"1")
        disk.write("t/b", b"2")
        view(disk).remove("t")
        disk.cut_power()
        left.add(tuple(disk.files()))
    assert left == {(), ("t/a", "t/b"), ("t/b",)}


def test_old_handles_reach_nothing_after_a_power_loss() -> None:
    disk = SimDisk(Random(0))
    disk.write("a", b"1")
    storage = view(disk)
    file = storage.open("a")
    disk.cut_power()
    file.append(b"2")
    storage.write_bytes("b", b"3")
    asyncio.run(storage.fsync_directory(""))
    assert contents(disk) == {"a": b"1"}


@given(st.integers(0, 2**32), st.lists(st.tuples(st.sampled_from("acmrf"), st.integers(0, 2)), max_size=12))
def test_the_same_seed_gives_the_same_disk(seed: int, steps: list[tuple[str, int]]) -> None:
    def run() -> dict[str, bytes]:
        disk = SimDisk(Random(seed))

        async def scenario() -> None:
            storage = view(disk)
            for step, number in steps:
                path = f"f{number}"
                if step == "a":
                    storage.open(path).append(b"123")
                elif step == "c":
                    storage.open(path).truncate(1)
                elif step == "m":
                    storage.rename(path, "f0") if storage.exists(path) else storage.write_bytes(path, b"w")
                elif step == "r" and storage.exists(path):
                    storage.remove(path)
                else:
                    await storage.fsync_directory("")

        asyncio.run(scenario())
        disk.cut_power()
        return contents(disk)

    assert run() == run()


def test_every_operation_of_a_dead_process_fails_and_an_fsync_in_flight_does_not_return() -> None:
    dead = False

    def check() -> None:
        if dead:
            raise ProcessLookupError("dead")

    disk = SimDisk(Random(0))
    storage = disk.storage(check, lambda: 0)
    file = storage.open("a")
    part = file.slice(0, 0)

    async def scenario() -> None:
        nonlocal dead
        pending = asyncio.ensure_future(file.fsync())
        await asyncio.sleep(0)
        dead = True
        with pytest.raises(ProcessLookupError):
            await pending

    asyncio.run(scenario())
    calls = (
        lambda: storage.open("a"),
        lambda: storage.read_bytes("a"),
        lambda: storage.write_bytes("a", b""),
        lambda: storage.listdir(""),
        lambda: storage.exists("a"),
        lambda: storage.mkdir("b"),
        lambda: storage.rename("a", "b"),
        lambda: storage.remove("a"),
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        lambda: file.read(0, 1),
        part.read,
    )
    for call in calls:
        with pytest.raises(ProcessLookupError):
            call()
    assert disk.read("a") == b""


def test_errors_are_those_of_an_operating_system() -> None:
    storage = view(SimDisk(Random(0)))
    with pytest.raises(FileNotFoundError):
        storage.open("no/such")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes("none")
    storage.mkdir("d/e")
    with pytest.raises(IsADirectoryError):
        storage.open("d")
    with pytest.raises(OSError, match="not empty"):
        storage.rename("d/e", "d")
    file = storage.open("f")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append(b"x")
    with pytest.raises(ValueError, match="below the storage's root"):
        storage.open("../f")


def test_a_full_disk_refuses_what_does_not_fit_and_keeps_the_rest() -> None:
    disk = SimDisk(Random(0))
    storage = view(disk)
    file = storage.open("a")
    file.append(b"123456")
    disk.capacity = 8
    file.append(b"78")
    with pytest.raises(OSError, match="No space left"):
        file.append(b"9")
    with pytest.raises(OSError, match="No space left"):
        storage.write_bytes("b", b"x")
    file.truncate(3)
    file.append(b"xyz")
    disk.capacity = None
    file.append(b"more")
    assert disk.read("a") == b"123xyzmore"


def test_fsyncs_of_a_slow_disk_take_longer_and_are_counted() -> None:
    disk = SimDisk(Random(0))
    storage = disk.storage(fsync_delay=lambda: 0.01)
    file = storage.open("a")

    async def taken() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await file.fsync()
        return loop.time() - began

    async def scenario() -> list[float]:
        usual = await taken()
        disk.slowness.fsync = 0.2
        slow = await taken()
        disk.slowness.fsync = 0.0
        return [usual, slow, await taken()]

    with asyncio.Runner(loop_factory=lambda: SimLoop(0)) as runner:
        assert runner.run(scenario()) == pytest.approx([0.01, 0.21, 0.01])
    assert disk.slowness.so_far.fsyncs == 1


def test_a_disk_is_rolled_back_or_wiped_durably() -> None:
    disk = SimDisk(Random(0))
    disk.write("kept/a", b"old")
    before = disk.snapshot()
    view(disk).open("kept/a").append(b" and new")
    disk.write("kept/b", b"came later")
    disk.roll_back(before)
    disk.cut_power()
    assert contents(disk) == {"kept/a": b"old"}
    disk.wipe()
    disk.cut_power()
    assert contents(disk) == {}


def some_writes(disk: SimDisk, rng: Random) -> None:
    """Appends, cuts, fsyncs and renames of a file ``d/a``, at random."""
    storage = view(disk)

    async def scenario() -> None:
        storage.mkdir("d")
        for step in range(rng.randint(1, 12)):
            file = storage.open("d/a")
            match rng.randint(0, 6):
                case 0 | 1 | 2:
                    file.append(bytes([step + 65]) * rng.randint(1, 9))
                case 3:
                    file.truncate(rng.randint(0, file.size))
                case 4:
                    await file.fsync()
                case 5:
                    await storage.fsync_directory(rng.choice(["d", ""]))
                case 6:
                    storage.write_bytes("d/b", b"other")
                    await storage.fsync("d/b")
                    storage.rename("d/b", "d/a")

    asyncio.run(scenario())


def test_what_is_reserved_is_zeros_for_who_opens_it_and_survives_a_loss_of_power_once_it_is_fsynced() -> None:
    left = set()
    for seed in range(80):
        disk = SimDisk(Random(seed))

        async def scenario(disk: SimDisk = disk, given_back: bool = bool(seed % 2)) -> None:
            storage = view(disk)
            file = storage.open("a")
            file.append(b"12")
            await storage.fsync_directory("")
            file.reserve(6)
            assert (file.size, disk.used, disk.read("a"), disk.state("a").size) == (2, 6, b"12\0\0\0\0", 2)
            await file.fsync()
            file.append(b"34")
            assert (file.size, disk.used, disk.sizes("a"), file.read(0, 9)) == (4, 6, {"/a": 6}, b"1234")
            if given_back:
                file.reserve(0)
                assert disk.read("a") == b"1234"
            else:
                again = storage.open("a")
                assert (again.size, again.read(0, 9)) == (6, b"1234\0\0")

        asyncio.run(scenario())
        disk.cut_power()
        left.add((seed % 2, disk.read("a")))
    whole = {b"12\0\0\0\0", b"123\0\0\0", b"1234\0\0"}
    assert {found for odd, found in left if odd} == whole | {b"12", b"123", b"1234"}, (
        "what was given back may come back"
    )
    assert {found.ljust(6, b"\0") for odd, found in left if not odd} == whole


def test_a_full_disk_has_room_for_what_is_reserved() -> None:
    disk = SimDisk(Random(0))
    file = view(disk).open("a")
    disk.capacity = 4
    with pytest.raises(OSError, match="No space left"):
        file.reserve(5)
    file.reserve(4)
    file.append(b"1234")
    with pytest.raises(OSError, match="No space left"):
        file.append(b"5")
    assert (file.size, disk.free) == (4, 0)


def test_what_is_said_to_be_durable_is_left_by_any_loss_of_power() -> None:
    durable = 0
    for seed in range(400):
        disk = SimDisk(Random(seed))
        some_writes(disk, Random(f"writes {seed}"))
        state, seen = disk.state("d/a"), disk.read("d/a")
        assert state.size == len(seen)
        durable += bool(state.durable)
        disk.cut_power()
        left = contents(disk).get("d/a", b"")
        assert left[: state.durable] == seen[: state.durable]
    assert durable > 10


def test_a_file_that_was_cut_or_exchanged_has_another_version_and_one_that_grew_has_not() -> None:
    disk = SimDisk(Random(0))
    storage = view(disk)
    storage.open("a").append(b"one")
    first = disk.state("a")
    storage.open("a").append(b"two")
    assert disk.state("a").version == first.version
    assert disk.tail("a", first.size) == b"two"
    storage.open("a").truncate(3)
    cut = disk.state("a")
    assert cut.version != first.version
    storage.write_bytes("b", b"one")
    storage.rename("b", "a")
    assert disk.state("a").version != cut.version
    assert disk.names("") == ["a"]
    assert disk.names("nowhere") == []


class Mortal:
    """A process that its disk may end."""

    dead = False

    def kill(self) -> None:
        self.dead = True

    def stop(self) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def check(self) -> None:
        if self.dead:
            raise OSError(errno.ESRCH, "killed")


async def appends(storage: Storage) -> None:
    storage.open("a").append(b"more")


async def replaces(storage: Storage) -> None:
    storage.write_bytes("a", b"other")


async def cuts(storage: Storage) -> None:
    storage.open("a").truncate(1)


async def reserves(storage: Storage) -> None:
    storage.open("a").reserve(100)


async def syncs_a_file(storage: Storage) -> None:
    await storage.open("a").fsync()


async def syncs_a_path(storage: Storage) -> None:
    await storage.fsync("a")


async def syncs_a_folder(storage: Storage) -> None:
    await storage.fsync_directory("")


async def renames(storage: Storage) -> None:
    storage.rename("a", "b")


async def removes(storage: Storage) -> None:
    storage.remove("a")


async def makes_a_folder(storage: Storage) -> None:
    storage.mkdir("folder")


CHANGES: dict[Callable[[Storage], Awaitable[None]], DiskChange] = {
    appends: DiskChange.WRITE,
    replaces: DiskChange.WRITE,
    cuts: DiskChange.CUT,
    reserves: DiskChange.CUT,
    syncs_a_file: DiskChange.FSYNC,
    syncs_a_path: DiskChange.FSYNC,
    syncs_a_folder: DiskChange.FSYNC,
    renames: DiskChange.NAME,
    removes: DiskChange.NAME,
    makes_a_folder: DiskChange.NAME,
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_process_ends_just_after_a_change_that_is_made(change: Callable[[Storage], Awaitable[None]]) -> None:
    """On the disk it is as after one in which nothing ends."""

    async def after(ends: bool) -> tuple[dict[str, bytes], int, DiskErrorEffects]:
        disk, process = SimDisk(Random(0)), Mortal()
        storage: Storage = disk.storage(check=process.check, fsync_delay=lambda: 0, process=process)
        storage.open("a").append(b"as it was")
        await storage.fsync_directory("")
        plan = disk.failure_plan
        plan.changes, plan.errors, plan.after_change = (CHANGES[change],) * ends, 0, True
        if not ends:
            await change(storage)
        else:
            with pytest.raises(OSError, match="killed"):
                await change(storage)
        assert process.dead is ends
        durable = disk.state("a").durable if "a" in disk.files() else -1
        return contents(disk), durable, disk.failure_plan.so_far

    ended, usual = asyncio.run(after(True)), asyncio.run(after(False))
    assert ended[:2] == usual[:2]
    assert (ended[2], usual[2]) == (DiskErrorEffects(0, 1), DiskErrorEffects())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("errors", [1, 0], ids=["rejected", "ended"])
def test_a_disk_fails_at_changes_of_its_kind_and_nothing_is_changed(
    change: Callable[[Storage], Awaitable[None]], errors: int
) -> None:
    """A file that is written as a whole is empty before it has its bytes."""

    async def scenario() -> None:
        for kind in DiskChange:
            disk, process = SimDisk(Random(0)), Mortal()
            storage: Storage = disk.storage(check=process.check, fsync_delay=lambda: 0, process=process)
            storage.open("a").append(b"as it was")
            disk.failure_plan.changes, disk.failure_plan.errors = (kind,), errors
            if kind is not CHANGES[change]:
                await change(storage)
                assert disk.failure_plan.so_far == DiskErrorEffects()
                continue
            with pytest.raises(OSError, match="Input/output error" if errors else "killed"):
                await change(storage)
            assert disk.failure_plan.so_far == (DiskErrorEffects(1, 0) if errors else DiskErrorEffects(0, 1))
            assert process.dead is not bool(errors)
            assert contents(disk) == {"a": b"" if change is replaces else b"as it was"}
            assert disk.state("a").durable == 0
            process.dead = False
            await change(storage)
            assert disk.failure_plan.so_far == (DiskErrorEffects(1, 0) if errors else DiskErrorEffects(0, 1)), (
                "it was for once"
            )

    asyncio.run(scenario())


def test_some_changes_come_first_and_only_so_many_are_rejected() -> None:
    disk, process = SimDisk(Random(0)), Mortal()
    file = disk.storage(fsync_delay=lambda: 0, process=process).open("a")
    disk.failure_plan.changes, disk.failure_plan.after, disk.failure_plan.errors = tuple(DiskChange), 2, 3
    came: list[str] = []
    for _ in range(8):
        try:
            file.append(b".")
            came.append("made")
        except OSError:
            came.append("rejected")
    assert came == ["made"] * 2 + ["rejected"] * 3 + ["made"] * 3
    assert disk.read("a") == b"....."


def test_the_disk_fails_its_process_and_no_one_who_looks_from_outside() -> None:
    disk = SimDisk(Random(0))
    disk.failure_plan.changes = tuple(DiskChange)
    disk.write("a", b"1")
    view(disk).open("a").append(b"2")
    assert disk.read("a") == b"12"
