"""The table of published histories: each format is read, and a verdict is compared with the source's claim."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "published_histories.py"

LOST_UPDATE = """\
w x 1
-----
r x 1
w x 2
=====
r x 1
w x 3
"""
JAVA = """
    void lostUpdate() {
        var history = of(Map.of(0, List.of(0, 1), 1, List.of(2)), Map.of(
            0, List.of(Triple.of(WRITE, "x", 1)),
            1, List.of(Triple.of(READ, "x", 1), Triple.of(WRITE, "x", 2)),
            2, List.of(Triple.of(READ, "x", 1), Triple.of(WRITE, "x", 3))));
        assertFalse(verifier.audit(history));
    }
    void
"""
RUST = """
fn lost_update() {
    let history = vec![
        vec![vec![w("x", 1)], vec![r("x", 1), w("x", 2)]],
        vec![vec![r("x", 1), w("x", 3)]],
    ];
    assert!(check(&history, Consistency::Serializable).is_err());
    assert!(check(&history, Consistency::Causal).is_ok());
}
"""
SOURCES: Mapping[str, tuple[str, str, str]] = {
    "awdit": (
        "histories/tests/causal/lost.txt",
        LOST_UPDATE,
        "read-committed: holds; read-atomic: holds; causal: holds",
    ),
    "polysi": ("src/test/java/TestVerifier.java", JAVA, "snapshot-isolation: violated"),
    "dbcop": ("crates/core/tests/basic.rs", RUST, "Serializable: violated; Causal: holds"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_published_history_is_compared_with_its_claim(source: str, tmp_path: Path) -> None:
    path, text, claims = SOURCES[source]
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), f"--{source}={tmp_path}"], capture_output=True, text=True, check=True
    )
    row = done.stdout.splitlines()[2]
    assert f"| {claims} | fail (" in row
    assert row.endswith("| right |")
