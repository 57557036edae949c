"""The memory and the disk space that a node uses, printed by one long-running shell command on the node.

Processes share pages, so their resident memory cannot simply be added up. The command adds the private pages
(``RssAnon``) of all processes, and the shared pages (``RssFile``, ``RssShmem``) of the process that has most of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from assay.cluster.ssh.process import list_family_command
from assay.cluster.ssh.stream import Command

UNKNOWN: Final = "-"


@dataclass(frozen=True)
class Usage:
    """Bytes that a node uses. None: no process is alive, or there is no such folder.

    ``uptime``: the time of the measurement, in seconds since the node's kernel started.
    """

    uptime: float
    memory: int | None
    disk: int | None


def usage_watch_command(processes: Sequence[str], folder: str | None, every: float, rounds: int) -> Command:
    """Returns the command that prints a line for :func:`parse_usage` every ``every`` seconds.

    After ``rounds`` lines it doubles the interval, so that a long run has few lines. ``processes``: names of the node's
    processes. ``folder``: the system's data folder, if it has one.
    """
    members = "".join(f"{list_family_command(one)}\nmembers=$members$left\n" for one in processes)
    fields = " ".join(f"-e 's/^Rss{name}:[^0-9]*\\([0-9]*\\) kB$/\\1/p'" for name in ("Anon", "File", "Shmem"))
    disk = "" if folder is None else f"set -- $(du -sk {shlex.quote(folder)} 2>/dev/null); disk=${{1:-{UNKNOWN}}}"
    pause = "pause=$((every / 1000)).$(printf %03d $((every % 1000)))"  # milliseconds: the shell knows no fractions
    script = f"""every={round(every * 1000)} printed=0
{pause}
while :; do
members= files= memory={UNKNOWN} disk={UNKNOWN}
{members}
for member in $members; do files="$files /proc/$member/status"; done
set --
[ -z "$files" ] || set -- $(sed -n {fields} $files 2>/dev/null)
private=0 shared=0
while [ $# -gt 2 ]; do
  private=$((private + $1)); [ $(($2 + $3)) -le $shared ] || shared=$(($2 + $3))
  memory=$((private + shared)); shift 3
done
{disk}
read -r uptime rest < /proc/uptime
echo $uptime $memory $disk || exit
sleep $pause
printed=$((printed + 1))
[ $printed -lt {rounds} ] || {{ every=$((every * 2)); printed={rounds // 2}; {pause}; }}
done
"""
    return lambda delivered: script


def parse_usage(line: str) -> Usage | None:
    """Parses a line that the command printed; None if it is damaged."""
    found = re.fullmatch(r"(\d+\.\d+) (\d+|-) (\d+|-)", line, re.ASCII)
    if found is None:
        return None
    memory, disk = (None if word == UNKNOWN else int(word) * 1024 for word in found.groups()[1:])
    return Usage(float(found[1]), memory, disk)
