"""Texts that runs have left, as the pages of many runs show them."""

from __future__ import annotations

import shlex

from assay.harness.nightly.markdown import make_code_block
from assay.reports.index.entry import LONGEST_COMMAND, sanitize_command


def test_a_command_is_whole_and_can_be_pasted() -> None:
    argv = ["pytest", "t.py", *(f"--set=name.{number}=two  spaces" for number in range(500))]
    command = shlex.join(argv)
    assert len(command) > 10_000
    assert shlex.split(sanitize_command(command)) == argv
    assert command in make_code_block(command).splitlines()


def test_a_command_that_is_too_long_is_not_cut_but_left_out() -> None:
    assert sanitize_command("x" * LONGEST_COMMAND) == "x" * LONGEST_COMMAND
    longer = sanitize_command("rm -r " + "x" * LONGEST_COMMAND)
    assert shlex.split(longer, comments=True) == []
    assert "run.json has it" in longer


def test_a_command_cannot_hide_a_part_of_itself() -> None:
    assert sanitize_command("pytest \x1b[8m\u202e\n") == "pytest \\x1b[8m\\u202e\\n"
