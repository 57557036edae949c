"""Time and memory to decide sets and queues, as operations and unknown outcomes grow.

    python benchmarks/sets_and_queues.py [--operations 1000,10000,100000] [--kinds ...] [--porcupine-seconds N] [--json]

Ten clients call one object, and call again as soon as they have an answer. A case is one of these kinds of history:

- ``set-final-read``: adds, of which 1 % have no known end, and three reads of the whole set at the end, as in Jepsen.
- ``set-contains``: adds of few elements, and ``contains``.
- ``set-removals``: adds and removals of few elements, and ``contains``.
- ``queue``: enqueues and dequeues of a queue that is seldom empty.
- ``queue-unknown``: also with 1 % of both of unknown outcome, and answers that the queue is empty.
- ``set-illegal``, ``queue-illegal``: an add is lost; a value is overtaken.

With ``--porcupine-seconds``, Porcupine judges each history of at most 10,000 operations, too. Go must be installed.
The times of both are processor times; the limit of Porcupine is by the clock.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from assay.checkers.linearizability import MODELS, search
from assay.harness.core.history import SCHEMAS

from figures import Output, make_parser, names, numbers, track_peak_memory

CLIENTS: Final = 10
INFO_SHARE: Final = 0.01
ELEMENTS: Final = 2_000
MOST_FOR_PORCUPINE: Final = 10_000

Answer = Callable[[random.Random, int], tuple[str, Any, Any]]
"""Takes a random source and the number of the operation. Returns ``f``, the argument and the result."""


class _Object:
    """A correct object. Its methods take effect at once and return what a client would record."""

    def __init__(self) -> None:
        self.elements: set[int] = set()
        self.values: deque[int] = deque()

    def add_new(self, rng: random.Random, number: int) -> tuple[str, Any, Any]:
        self.elements.add(number)
        return "add", number, None

    def add_or_contain(self, rng: random.Random, number: int) -> tuple[str, Any, Any]:
        element = rng.randrange(ELEMENTS)
        if rng.random() < 0.5:
            self.elements.add(element)
            return "add", element, None
        return "contains", element, element in self.elements

    def add_or_remove(self, rng: random.Random, number: int) -> tuple[str, Any, Any]:
        if rng.random() < 0.3:
            element = rng.randrange(ELEMENTS)
            self.elements.discard(element)
            return "remove", element, None
        return self.add_or_contain(rng, number)

    def read(self) -> tuple[str, Any, Any]:
        return "read", None, sorted(self.elements)

    def queue(self, rng: random.Random, number: int) -> tuple[str, Any, Any]:
        return self._queue(number, dequeues=rng.random() < (0.45 if len(self.values) < 50 else 0.55))

    def queue_often_empty(self, rng: random.Random, number: int) -> tuple[str, Any, Any]:
        return self._queue(number, dequeues=rng.random() < 0.55)

    def _queue(self, number: int, *, dequeues: bool) -> tuple[str, Any, Any]:
        if dequeues:
            return "dequeue", None, self.values.popleft() if self.values else None
        self.values.append(number)
        return "enqueue", number, None


KINDS: Final[Mapping[str, tuple[str, str, float]]] = {
    "set-final-read": ("set", "add_new", INFO_SHARE),
    "set-contains": ("set", "add_or_contain", INFO_SHARE),
    "set-removals": ("set", "add_or_remove", INFO_SHARE),
    "queue": ("fifo-queue", "queue", 0.0),
    "queue-unknown": ("fifo-queue", "queue_often_empty", INFO_SHARE),
    "set-illegal": ("set", "add_new", INFO_SHARE),
    "queue-illegal": ("fifo-queue", "queue", 0.0),
}
"""By kind, the model, the method of ``_Object`` and the share of unknown outcomes."""


def generate(kind: str, operations: int, seed: int = 1) -> pa.Table:
    """Returns the ``ops`` of one object. Operations take 50 to 150 us, and take effect in their middle."""
    rng = random.Random(f"{kind}-{operations}-{seed}")
    _, method, share = KINDS[kind]
    subject = _Object()
    answer: Answer = getattr(subject, method)
    free = [(rng.randrange(100_000), client) for client in range(CLIENTS)]
    planned = []
    for _ in range(operations):
        free.sort()
        call, client = free[0]
        took = rng.randrange(50_000, 150_000)
        planned.append((call + took * rng.uniform(0.3, 0.7), call, call + took, client))
        free[0] = (call + took + 1_000, client)
    rows = []
    for number, (_, call, ret, client) in enumerate(sorted(planned)):
        f, argument, result = answer(rng, number)
        info = rng.random() < share
        rows.append([f, argument, None if info else result, call, None if info else ret, client])
    end = max(ret for _, _, ret, _ in planned)
    if method == "add_new":
        for number in range(3):
            end += 1_000
            rows.append([*subject.read(), end, end + 500, number])
    if kind == "set-illegal":
        lost = next(row[1] for row in rows[operations // 2 :] if row[4] is not None)
        for row in rows[-3:]:
            row[2] = [element for element in row[2] if element != lost]
    if kind == "queue-illegal":
        taken = [row for row in rows[operations // 2 :] if row[0] == "dequeue" and row[2] is not None]
        early, late = taken[0], taken[4 * CLIENTS]
        early[2], late[2] = late[2], early[2]
    rows.sort(key=lambda row: row[3])
    columns: dict[str, Any] = {
        "index": range(len(rows)),
        "process": [row[5] for row in rows],
        "worker": ["0"] * len(rows),
        "f": [row[0] for row in rows],
        "argument": [json.dumps(row[1]) for row in rows],
        "result": [json.dumps(row[2]) for row in rows],
        "call": [row[3] for row in rows],
        "ret": [row[4] for row in rows],
        "outcome": ["info" if row[4] is None else "ok" for row in rows],
        "phase": ["main"] * len(rows),
    }
    arrays = [
        pa.array(columns[field.name], type=field.type) if field.name in columns else pa.nulls(len(rows), field.type)
        for field in SCHEMAS["ops"]
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMAS["ops"])


def measure(kind: str, operations: int, out: Output) -> dict[str, Any]:
    """Judges one case and describes it."""
    table = generate(kind, operations)
    with track_peak_memory() as peak:
        begun, used = time.perf_counter(), time.process_time()
        judged = search(table, MODELS[KINDS[kind][0]])
        seconds, processor = time.perf_counter() - begun, time.process_time() - used
    note = judged.examined[0].note
    out.text(
        f"{operations:>8} operations {kind:15} {judged.verdict:8} {processor:7.2f} s of processor time "
        f"({seconds:.2f} s by the clock), {peak.bytes / 1e6:.0f} MB; {note}"
    )
    return {
        "operations": operations,
        "kind": kind,
        "verdict": judged.verdict.value,
        "seconds": seconds,
        "processor_seconds": processor,
        "megabytes": peak.bytes / 1e6,
        "note": note,
    }


GO_MODULE: Final = "github.com/anishathalye/porcupine@v1.1.0"
GO_PROGRAM: Final = """
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
)

type op struct {
	F        string
	Argument int
	Result   []int
	Empty    bool
	Known    bool
	Found    bool
	Call     int64
	Ret      int64
	Process  int
}

func processorSeconds() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		panic("no processor time")
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func with(state string, value int) string { return state + strconv.Itoa(value) + "," }

func main() {
	var ops []op
	if json.NewDecoder(os.Stdin).Decode(&ops) != nil {
		panic("no operations")
	}
	seconds, _ := strconv.Atoi(os.Args[1])
	operations := make([]porcupine.Operation, 0, len(ops))
	for _, one := range ops {
		operations = append(operations, porcupine.Operation{
			ClientId: one.Process, Input: one, Call: one.Call, Output: one, Return: one.Ret})
	}
	type set = map[int]bool
	copied := func(state set) set {
		other := make(set, len(state)+1)
		for element := range state {
			other[element] = true
		}
		return other
	}
	model := porcupine.Model{
		Init: func() interface{} { return "" },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			queue, one := state.(string), input.(op)
			if one.F == "enqueue" {
				return true, with(queue, one.Argument)
			}
			if !one.Known {
				for at := range queue {
					if queue[at] == ',' {
						return true, queue[at+1:]
					}
				}
				return true, queue
			}
			if one.Empty {
				return queue == "", queue
			}
			front := with("", one.Result[0])
			if len(queue) >= len(front) && queue[:len(front)] == front {
				return true, queue[len(front):]
			}
			return false, queue
		},
	}
	if len(ops) > 0 && ops[0].F != "enqueue" && ops[0].F != "dequeue" {
		model = porcupine.Model{
			Init: func() interface{} { return set{} },
			Step: func(state, input, output interface{}) (bool, interface{}) {
				elements, one := state.(set), input.(op)
				switch one.F {
				case "add":
					other := copied(elements)
					other[one.Argument] = true
					return true, other
				case "remove":
					other := copied(elements)
					delete(other, one.Argument)
					return true, other
				case "contains":
					return !one.Known || elements[one.Argument] == one.Found, elements
				}
				if len(one.Result) != len(elements) {
					return false, elements
				}
				for _, element := range one.Result {
					if !elements[element] {
						return false, elements
					}
				}
				return true, elements
			},
			Equal: func(one, other interface{}) bool {
				first, second := one.(set), other.(set)
				if len(first) != len(second) {
					return false
				}
				for element := range first {
					if !second[element] {
						return false
					}
				}
				return true
			},
		}
	}
	begun := processorSeconds()
	result := porcupine.CheckOperationsTimeout(model, operations, time.Duration(seconds)*time.Second)
	fmt.Printf("%s %f\\n", result, processorSeconds()-begun)
}
"""


class Porcupine:
    """Porcupine, built once in a temporary folder. Its Go module comes from the Go module proxy."""

    def __init__(self, folder: Path) -> None:
        (folder / "main.go").write_text(GO_PROGRAM)
        for command in (["mod", "init", "judge"], ["get", GO_MODULE], ["build", "-o", "judge", "."]):
            done = subprocess.run(
                ["go", *command], cwd=folder, capture_output=True, text=True, timeout=600, check=False
            )
            if done.returncode:
                raise SystemExit(f"go {' '.join(command)} failed: {done.stderr}")
        self._program = folder / "judge"

    def judge(self, table: pa.Table, seconds: int) -> tuple[str, float]:
        """Returns its answer, and the seconds of processor time that it took. ``seconds``: its limit by the clock."""
        horizon = max(table["call"].to_pylist()) + 10**9
        ops = []
        for row in table.to_pylist():
            argument, result = (json.loads(row[name]) for name in ("argument", "result"))
            known = row["outcome"] == "ok"
            ops.append(
                {
                    "F": row["f"],
                    "Argument": argument or 0,
                    "Result": result if isinstance(result, list) else [result if type(result) is int else 0],
                    "Empty": result is None,
                    "Found": result is True,
                    "Known": known,
                    "Call": row["call"],
                    "Ret": row["ret"] if known else horizon,
                    "Process": row["process"],
                }
            )
        done = subprocess.run(
            [str(self._program), str(seconds)],
            input=json.dumps(ops), capture_output=True, text=True, timeout=seconds + 120, check=False,
        )  # fmt: skip
        if done.returncode:
            return "error", 0.0
        verdict, taken = done.stdout.split()
        return verdict, float(taken)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--operations", type=numbers, default=[1_000, 10_000, 100_000])
    parser.add_argument("--kinds", type=names, default=list(KINDS))
    parser.add_argument("--porcupine-seconds", type=int, default=0, help="time limit of Porcupine for each history")
    options = parser.parse_args()
    out = Output(options.json)
    cases = [measure(kind, operations, out) for kind in options.kinds for operations in options.operations]
    if options.porcupine_seconds:
        if shutil.which("go") is None:
            raise SystemExit("Porcupine needs Go, and there is no go on the PATH")
        with tempfile.TemporaryDirectory(prefix="assay-porcupine-") as folder:
            peer = Porcupine(Path(folder))
            for case in cases:
                if case["operations"] > MOST_FOR_PORCUPINE:
                    continue
                table = generate(case["kind"], case["operations"])
                answer, seconds = peer.judge(table, options.porcupine_seconds)
                ratio = seconds / case["processor_seconds"]
                out.text(
                    f"{case['operations']:>8} operations {case['kind']:15} Porcupine: {answer:8} {seconds:7.2f} s of "
                    f"processor time, {ratio:.1f} times as much"
                )
                case["porcupine"], case["porcupine_seconds"], case["porcupine_ratio"] = answer, seconds, ratio
    out.figures({"cases": cases})


if __name__ == "__main__":
    main()
