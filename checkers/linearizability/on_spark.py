"""Keys on the executors of a Spark: one job for each handful of keys, as many at once as it has cores.

A job of its own each, so that what is known is known at once, and a process that dies takes no other answer along. The
executors need this package, and the model's module, where their Python finds them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from checkers.engine import EngineError, EngineUnavailable
from checkers.linearizability.answer import Answer, answer, died
from checkers.linearizability.encode import Encoded
from checkers.linearizability.limits import Limits
from checkers.linearizability.place import Answers, side_by_side
from checkers.linearizability.pool import Chunk

if TYPE_CHECKING:
    from checkers.engine.spark import Spark


class OnSpark:
    """A ``Place``. Raises ``EngineUnavailable`` where the executors cannot load what they need."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def answers(self, encoded: Encoded, keys: Sequence[int], limits: Limits) -> Answers:
        if not keys:
            return
        try:
            self._spark.run(_loaded, pickle.dumps(encoded.model))
        except (EngineError, pickle.PicklingError, AttributeError) as error:
            raise EngineUnavailable(
                f"Spark's executors cannot load the model {encoded.model.name}; install assay, and the model's module, "
                f"where their Python (PYSPARK_PYTHON) finds them, or search here with --engine=duckdb: {error}"
            ) from error
        beside = self._spark.parallelism
        yield from side_by_side(lambda *asked: self._run(encoded, *asked), encoded, keys, limits, beside)

    def _run(self, encoded: Encoded, chunks: Sequence[Chunk], limits: Limits, beside: int) -> Answers:
        threads = ThreadPoolExecutor(beside)
        under_way: dict[Future[list[tuple[int, Answer]]], Chunk] = {
            threads.submit(self._ask, encoded, chunk, limits): chunk for chunk in chunks
        }
        try:
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    chunk = under_way.pop(future)
                    try:
                        yield from future.result()
                    except EngineError as error:
                        if len(chunk) == 1:
                            yield chunk[0], died(encoded.history(chunk[0]), f"was lost: {error}")
                        else:  # each for itself: one of them is the reason
                            alone = [(number,) for number in chunk]
                            under_way |= {threads.submit(self._ask, encoded, one, limits): one for one in alone}
        finally:
            if under_way:
                self._spark.cancel()
            threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, encoded: Encoded, chunk: Chunk, limits: Limits) -> list[tuple[int, Answer]]:
        histories = [(number, encoded.history(number)) for number in chunk]
        found: list[tuple[int, Answer]] = pickle.loads(self._spark.run(_answers, pickle.dumps((histories, limits))))
        return found


def _loaded(model: bytes) -> bytes:
    pickle.loads(model)
    return b""


def _answers(task: bytes) -> bytes:
    histories, limits = pickle.loads(task)
    return pickle.dumps([(number, answer(history, limits)) for number, history in histories])
