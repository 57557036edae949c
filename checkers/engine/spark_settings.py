"""Settings of Spark: for the start of the JVM, and for each session by the size of its history.

Locally, Spark is isolated: it uses only loopback, has no UI, downloads no packages, and keeps all files in one
temporary folder, which is removed in the end. With any other master (standalone, YARN, Kubernetes), the cluster's own
settings (``spark-defaults.conf``, ``SPARK_CONF_DIR``) apply. The history must then be readable from all its nodes.

Small histories are judged without generated code, because compiling Java for some hundred tiny queries takes ten times
as long as running them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOCAL: Final = "local[2]"
_LOOPBACK: Final = ("spark://127.", "spark://localhost:")
"""Prefixes of standalone masters on this machine."""
SMALL_ROWS: Final = 1_000_000
"""Histories with fewer effects are judged without generated code and without parallel shuffles."""

LEAST_PARTITIONS: Final = 4
"""Minimum number of shuffle partitions for a large history."""
PARTITION_ROWS: Final = 2_000_000
"""Effects per shuffle partition of a large history on this machine. A cluster uses its own setting."""

SHARED: Final[Mapping[str, str]] = {
    "spark.app.name": "assay",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",  # "group" is a column here, a text in Spark's own dialect
    "spark.sql.caseSensitive": "false",
    # A checkpoint keeps constraints on columns that it no longer has, and a union of such checkpoints then cannot be
    # planned (NoSuchElementException in UnionBase.rewriteConstraints, Spark 4.3). Only inferred filters are lost.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Functions that are called per key need both settings. Without the first, Spark would distribute the rows once
    # more, and keys would leave the partitions that the engine chose. Without the second, texts would have another
    # type.
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.parquet.enableVectorizedReader": "true",
    # Tables keep their rows serialised. Java's serialiser takes three times as long as Kryo. If Kryo had to track
    # references, it would be as slow as Java's.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.referenceTracking": "false",
    "spark.kryo.classesToRegister": "org.apache.spark.sql.catalyst.expressions.UnsafeRow",
    "spark.kryoserializer.buffer.max": "2047m",  # the result of one task must fit
    # Each of some hundred queries runs once, so a generated hash map costs more to compile than it saves.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # Spark would format the text of each plan, and keep the last thousand, for the UI, which is off.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
}
"""Settings for every master: the semantics of the SQL, and lower costs of some hundred small queries."""

LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


def build_settings(master: str, memory: str, folder: Path, quick: bool) -> dict[str, str]:
    """Returns the settings that the JVM starts with. ``quick``: it will judge only small histories."""
    chosen = {
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    # Checks of many columns become methods too long for the JVM to compile unless this is set.
    java = [
        "-XX:-UsePerfData",
        "-XX:-DontCompileHugeMethods",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
    ]
    if master.startswith("local"):
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.jars.ivy": str(folder / "ivy"),
        }
        java.append(f"-Djava.io.tmpdir={folder}")
        java.append("-XX:+UseSerialGC" if quick else "-XX:+UseParallelGC")
    elif master.startswith(_LOOPBACK):  # all workers are on this machine, too
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if quick:
        # Each sort, join or group of a task takes a page, by default of 64 MB: zeroing it costs more than the work.
        chosen["spark.buffer.pageSize"] = "1m"
        # With one compiler tier the default code cache is too small for Spark: code would be discarded and recompiled.
        java += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
        # Verifying Spark's classes takes a quarter of its start.
        java += ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]
    else:  # Each of some hundred queries runs once, so less inlining halves the compile time.
        java += ["-XX:MaxInlineLevel=5", "-XX:InlineSmallCode=1000"]
    return chosen | {"spark.driver.extraJavaOptions": " ".join(java)}


def build_session_settings(master: str, effects: int | None) -> dict[str, str]:
    """Returns the settings of a session, which depend on the size of the history. A cluster uses its own settings for
    large histories."""
    if effects is not None and effects < SMALL_ROWS:
        return {
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.files.maxPartitionBytes": "1g",
            "spark.sql.files.openCostInBytes": "0",
        }
    if not master.startswith("local"):
        return {}
    return {"spark.sql.shuffle.partitions": str(max(LEAST_PARTITIONS, (effects or 0) // PARTITION_ROWS))}
