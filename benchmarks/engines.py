"""How long DuckDB and Spark take to judge one large log history, in one run, as a ratio.

    python benchmarks/engines.py [--operations 1000000] [--partitions 16] [--spark-master local[2]]

Both judge the same files with the same SQL; their judgements must be equal to the last word. Spark's time is given with
and without the start of its JVM, which a session pays once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import msgspec
from checks import generate

from checkers.contract import forbid
from checkers.engine import DuckDB, Engine
from checkers.engine.spark import LOCAL, SparkApplication
from checkers.judge import judge
from checkers.log import LOG_ANOMALIES
from checkers.verdict import Judgement


def judged(folder: Path, engine: Engine) -> Judgement:
    """Judges, and prints what each check took."""
    judgement = judge(folder, forbid(*LOG_ANOMALIES), engine=engine)
    slowest = sorted(judgement.examined, key=lambda one: -one.seconds)[:3]
    told = ", ".join(f"{one.check} {one.seconds:.1f} s" for one in slowest)
    print(f"{engine.name:7} {judgement.seconds:7.1f} s  {judgement.verdict}  (slowest: {told})", flush=True)
    return judgement


def same(one: Judgement, other: Judgement) -> bool:
    """Whether they say the same, apart from names and times."""

    def plain(judgement: Judgement) -> Judgement:
        examined = tuple(msgspec.structs.replace(each, seconds=0.0) for each in judgement.examined)
        return msgspec.structs.replace(judgement, engine="", seconds=0.0, examined=examined)

    return plain(one) == plain(other)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--operations", type=int, default=1_000_000)
    arguments.add_argument("--partitions", type=int, default=16)
    arguments.add_argument("--spark-master", default=LOCAL)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "history"
        effects = generate(folder, options.operations, options.partitions)
        print(f"{options.operations} operations, {effects} effects")
        with DuckDB() as duck:
            by_duck = judged(folder, duck)
        begun = time.perf_counter()
        with SparkApplication(options.spark_master) as application:
            started = time.perf_counter() - begun
            with application.engine(effects=effects) as spark:
                by_spark = judged(folder, spark)
    ratio = by_spark.seconds / by_duck.seconds
    print(f"start of Spark {started:.1f} s; Spark / DuckDB: {ratio:.1f}; same judgement: {same(by_spark, by_duck)}")


if __name__ == "__main__":
    main()
