"""Toy servers (sets, queues, registers, locks, logs) of one node, with bugs to switch on, and their clients.

Protocol: one JSON line each way, ``[command, key, ...]`` and the answer.
Bugs:

- memory: nothing is kept over a restart
- nosync: no fsync
- drop: each tenth change is acknowledged and left out
- late-drop: the same, after a log has 200 records
- dup: each tenth element is given out or stored twice
- stale: a connection reads from a cache of two seconds
- race: compare-and-set is not atomic
- twice: after each third release, the lock is also given to a second client
- reorder: each tenth record is put before the last one
"""

import asyncio
import itertools
import json
from collections import defaultdict

from assay import (
    LOG_ANOMALIES,
    Completion,
    Effect,
    Operation,
    Outcome,
    Phase,
    System,
    sequence,
    unfold,
    until_ok,
)
from assay.workloads.broker import log_operations
from assay.workloads.generic import locks, queues, sets

PORT, PATH = 7000, "var/toy/data"


class Server:
    def __init__(self, disk, bugs):
        self.disk, self.bugs, self.lock, self.counts = disk, bugs, asyncio.Lock(), defaultdict(int)
        self.sets, self.queues, self.values, self.logs = defaultdict(list), defaultdict(list), {}, defaultdict(list)
        self.tokens, self.holders, self.spare = defaultdict(int), {}, 0

    def nth(self, n, what="change"):
        self.counts[what] += 1
        return self.counts[what] % n == 0

    async def recover(self):
        self.disk.mkdir("var/toy")
        self.file = self.disk.open(PATH)
        for folder in ("var/toy", "var", ""):
            await self.disk.fsync_directory(folder)
        lines, _, torn = self.disk.read_bytes(PATH).rpartition(b"\n")
        self.file.truncate(self.file.size - len(torn))
        await self.file.fsync()
        for line in lines.decode().splitlines():
            self.apply(*json.loads(line))

    async def write(self, *record):
        if "memory" not in self.bugs:
            self.file.append(json.dumps(record).encode() + b"\n")
            if "nosync" not in self.bugs:
                await self.file.fsync()
        self.apply(*record)

    def apply(self, do, key, value, at=None):
        if do == "add":
            self.sets[key].append(value)
        elif do == "put":
            self.queues[key].append(value)
        elif do == "take":
            self.queues[key].remove(value)
        elif do == "set":
            self.values[key] = value
        elif do == "token":
            self.tokens[key] = value
        elif do == "append":
            log = self.logs[key]
            log.insert(len(log) if at is None else at, value)

    async def handle(self, session, do, key, *words):
        if do in ("read", "get") and "stale" in self.bugs:
            cached = session.setdefault("cache", {}).get((do, key))
            now = asyncio.get_running_loop().time()
            if cached is None or now - cached[0] > 2:
                cached = session["cache"][do, key] = now, await self.answer(session, do, key, *words)
            return cached[1]
        if do == "cas" and "race" in self.bugs:
            if self.values.get(key) != words[0]:
                return False
            await asyncio.sleep(0.005)
            await self.write("set", key, words[1])
            return True
        async with self.lock:
            return await self.answer(session, do, key, *words)

    async def answer(self, session, do, key, *words):
        drop = "drop" in self.bugs and do in ("add", "put", "set", "append") and self.nth(10)
        if do in ("add", "put", "set"):
            if not drop:
                await self.write(do, key, words[0])
            return "ok"
        if do == "read":
            return list(self.sets[key])
        if do == "take":
            if not self.queues[key]:
                return None
            value = self.queues[key][0]
            if not ("dup" in self.bugs and self.nth(10)):
                await self.write("take", key, value)
            return value
        if do == "get":
            return self.values.get(key)
        if do == "cas":
            if self.values.get(key) != words[0]:
                return False
            await self.write("set", key, words[1])
            return True
        if do == "acquire":
            if key in self.holders and not self.spare:
                return None
            if key in self.holders:
                self.spare = 0
            await self.write("token", key, self.tokens[key] + 1)
            self.holders[key] = self.tokens[key], session["id"]
            return self.tokens[key]
        if do in ("guarded", "release"):
            valid = self.holders.get(key, (None,))[0] == words[0]
            if do == "release" and valid:
                del self.holders[key]
                self.spare = int("twice" in self.bugs and self.nth(3))
            return valid
        if do == "append":
            log, value = self.logs[key], words[0]
            late = "late-drop" in self.bugs and len(log) > 200 and self.nth(10)
            position = len(log)
            swap = "reorder" in self.bugs and position and self.nth(10)
            await self.write("append", key, None if drop or late else value, position - 1 if swap else None)
            if "dup" in self.bugs and self.nth(10):
                await self.write("append", key, value)
            return position
        if do == "fetch":
            log, start = self.logs[key], words[0]
            if start > len(log):
                return "out-of-range"
            found = [[start + n, value] for n, value in enumerate(log[start : start + 200])]
            return [[one for one in found if one[1] is not None], start + len(found)]
        if do == "end":
            return len(self.logs[key])
        return "no such command"

    def left(self, session):
        for key, (_, owner) in list(self.holders.items()):
            if owner == session["id"]:
                del self.holders[key]


class Toy(System):
    name, roles, node_counts = "toy", ("server",), {"server": 1}

    def __init__(self, *bugs):
        self.bugs = frozenset(bugs)

    def port(self, role):
        return PORT

    def argv(self, node):
        return ["toy", node.address]

    def files(self, node, cluster):
        return {}

    async def ready(self, node):
        _, writer = await asyncio.open_connection(node.address, PORT)
        writer.close()
        return True

    async def entry(self, runtime, argv):
        server, numbers = Server(runtime.storage, self.bugs), itertools.count()
        await server.recover()

        async def connected(reader, writer):
            session = {"id": next(numbers)}
            try:
                while line := await reader.readline():
                    answer = await server.handle(session, *json.loads(line))
                    writer.write(json.dumps(answer).encode() + b"\n")
            except OSError:
                pass
            server.left(session)
            writer.close()

        async with await asyncio.start_server(connected, argv[-1], PORT):
            await asyncio.Event().wait()


class Connection:
    async def open(self, endpoint, runtime):
        host, port = endpoint.address.split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))

    async def ask(self, *words):
        async with asyncio.timeout(1):
            self.writer.write(json.dumps(words).encode() + b"\n")
            line = await self.reader.readline()
        if not line:
            raise ConnectionError("closed")
        return json.loads(line)

    async def close(self):
        self.writer.close()


def info(error, result=None):
    return Completion(Outcome.INFO, result, error=type(error).__name__)


class Set(Connection, sets.SetClient):
    async def invoke(self, operation):
        try:
            if operation.f == sets.ADD:
                await self.ask("add", operation.key, operation.argument)
                return Completion(Outcome.OK)
            return Completion(Outcome.OK, await self.ask("read", operation.key))
        except OSError as error:
            return info(error)


class Queue(Connection, queues.QueueClient):
    async def invoke(self, operation):
        taken = []
        try:
            if operation.f == queues.ENQUEUE:
                await self.ask("put", operation.key, operation.argument)
                return Completion(Outcome.OK)
            while (job := await self.ask("take", operation.key)) is not None:
                taken.append(job)
                if operation.f == queues.DEQUEUE:
                    break
        except OSError as error:
            return info(error, taken)
        return Completion(Outcome.OK, taken)


class Register(Connection):
    async def invoke(self, operation):
        f, key, new, expected = operation.f, operation.key, operation.argument, None
        try:
            if f == "write":
                await self.ask("set", key, new)
                return Completion(Outcome.OK)
            seen = await self.ask("get", key)
            if f == "read":
                return Completion(Outcome.OK, seen)
            expected = {"expected": seen}
            if not await self.ask("cas", key, seen, new):
                return Completion(Outcome.FAIL, error="changed")
            return Completion(Outcome.OK, expected)
        except OSError as error:
            return info(error, expected)

    @staticmethod
    def effects(completed):
        operation, result = completed.operation, completed.completion.result
        f, key, new = operation.f, operation.key, operation.argument
        if f == "read":
            return [Effect("register-read", key, value=result)]
        if f == "write":
            return [Effect("register-write", key, value=new)]
        if result is None:
            return []
        return [Effect("register-cas", key, value=new, expected=result["expected"])]


def traffic(keys, operations=("read", "write")):
    def step(value, context):
        f, key = context.choose(operations, salt=1), context.choose(keys, salt=2)
        return Operation(f, key, None if f == "read" else value), value + 1

    return unfold(step, 1) | final_reads(keys)


def final_reads(keys):
    return sequence(*(until_ok(Operation("read", key, phase=Phase.DRAIN)) for key in keys))


class Lock(Connection):
    """The asynchronous form of ``locks.Leases``."""

    token = None
    effects = staticmethod(locks.Leases.effects)

    async def invoke(self, operation):
        name, token = operation.key, self.token
        known = None if token is None else {"token": token}
        try:
            if operation.f == locks.ACQUIRE:
                if token is not None:
                    return Completion(Outcome.FAIL, error=locks.HAS_TOKEN)
                self.token = await self.ask("acquire", name)
                if self.token is None:
                    return Completion(Outcome.FAIL, error=locks.HELD)
                return Completion(Outcome.OK, {"token": self.token})
            if token is None:
                return Completion(Outcome.FAIL, error=locks.NOT_HELD)
            if operation.f == locks.RELEASE:
                self.token = None
            if not await self.ask(operation.f, name, token) and operation.f == locks.GUARDED:
                self.token = None
                return Completion(Outcome.FAIL, known, error=locks.STALE)
            return Completion(Outcome.OK, known)
        except OSError as error:
            return info(error, known)


class Mutex(Lock):
    """Acquire and release alone; a model judges them."""

    async def invoke(self, operation):
        done = await super().invoke(operation)
        return Completion(done.outcome, None, done.error)


class LockedSet(Connection, sets.SetClient):
    """The asynchronous form of ``locks.LockedSet``: a value is read, changed and written under the lock."""

    async def invoke(self, operation):
        try:
            if operation.f == sets.READ:
                return Completion(Outcome.OK, await self.ask("get", operation.key) or [])
            for _ in range(40):
                if (token := await self.ask("acquire", "lock")) is not None:
                    break
                await asyncio.sleep(0.05)
            else:
                return Completion(Outcome.FAIL, error="held")
            elements = await self.ask("get", operation.key) or []
            await asyncio.sleep(0.02)
            await self.ask("set", operation.key, [*elements, operation.argument])
            await self.ask("release", "lock", token)
            return Completion(Outcome.OK)
        except OSError as error:
            return info(error)


WITHOUT_DATA = ("send-skip", "high-watermark-regression")
"""As in workloads/test_kafka.py: sends of several records, and leader epochs."""
LOG_PROMISES = [name for name in LOG_ANOMALIES if name not in WITHOUT_DATA]


class Log(Connection):
    """Executes ``send``, ``poll`` and ``end`` of workloads/broker/log_operations.py."""

    effects = staticmethod(log_operations.effects)

    async def open(self, endpoint, runtime):
        await super().open(endpoint, runtime)
        self.positions, self.assignments = {}, itertools.count(1)

    async def invoke(self, operation):
        key, argument = operation.key, operation.argument
        try:
            if operation.f == "send":
                return Completion(Outcome.OK, {"offset": await self.ask("append", key, argument[0])})
            if operation.f == "end":
                return Completion(Outcome.OK, {"offset": await self.ask("end", key), "start": 0})
            return await self.poll(key, argument)
        except OSError as error:
            return info(error)

    async def poll(self, key, argument):
        sought = argument.get("seek", False) or key not in self.positions
        earliest = argument["start"] == log_operations.EARLIEST
        if sought:
            start = 0 if earliest else await self.ask("end", key)
            self.positions[key] = start, next(self.assignments)
        begin, assignment = self.positions[key]
        answer = await self.ask("fetch", key, begin)
        if answer == "out-of-range":
            del self.positions[key]
            return Completion(Outcome.FAIL, {"refused": begin}, error="out-of-range")
        records, end = answer
        self.positions[key] = end, assignment
        result = {"begin": begin, "records": records, "end": end, "assignment": assignment}
        result |= ({"sought": True} if sought else {}) | ({"start": 0} if sought and earliest else {})
        return Completion(Outcome.OK, result)
