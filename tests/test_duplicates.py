"""``scripts/duplicates`` finds equal code in two files, and no other equal lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "duplicates"
CODE = "".join(f"value_{number} = {number}\n" for number in range(11))
IMPORTS = "".join(f"import module_{number}\n" for number in range(11))
DOCSTRING = '"""A docstring.\n\n' + "".join(f"The sentence {number}.\n" for number in range(11)) + '"""\n'
SIGNATURE = "def function(\n" + "".join(f"    argument_{number}: int,\n" for number in range(11)) + ") -> None: ...\n"
COMMENTS = "".join(f"# The comment {number}.\n" for number in range(11))


@pytest.mark.parametrize(
    ("text", "found"),
    [(CODE, True), (IMPORTS, False), (DOCSTRING, False), (SIGNATURE, False), (COMMENTS, False)],
    ids=["code", "imports", "docstring", "signature", "comments"],
)
def test_code_that_stands_in_two_places_is_named_with_its_lines(text: str, found: bool, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / "part" / name).mkdir(parents=True)
        (tmp_path / "part" / name / "module.py").write_text(f"{name} = 1\n{text}{name} = 2\n")
    done = subprocess.run(
        [sys.executable, SCRIPT, "part"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == (1 if found else 0), done.stderr
    assert ("==part/first/module.py:[1:12]" in done.stderr) is found
