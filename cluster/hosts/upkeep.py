"""What is done to a host before a run and after it, as shell commands of root. Nothing here talks to a machine.

A run claims a host by a file with its id, which outlives a reboot. Whatever undoes something there looks at that id
first, so that no run ever takes away what belongs to another; and the claim is what goes last.
"""

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from assay.cluster.ssh import firewall, packets, process

CLAIM = "/var/lib/assay-claim"
MARK = "ASSAY_RUN"
"""In the environment of all that a run starts: by it they are found, also those that have left the main process."""
OWN = (process.FOLDER, process.LOG.rpartition("/")[0])
"""Folders of the harness's own notes."""


class PathError(ValueError):
    """A path is none that a run may make and remove; the message says why."""


def checked(path: str) -> str:
    """The path itself. Raises :class:`PathError`."""
    if not path.startswith("/") or posixpath.normpath(path) != path or not path.isprintable():
        raise PathError(f"{path!r} is no absolute path in its plain form")
    if len(PurePosixPath(path).parts) < 3:
        raise PathError(f"{path} lies at the top: name a file or a folder inside of it, which a run may remove")
    return path


def around(paths: Sequence[str]) -> list[str]:
    """All folders that these lie in, the deepest first."""
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"/"}
    return sorted(folders, key=lambda folder: (-len(PurePosixPath(folder).parts), folder))


NONE, EMPTY, FULL = "none", "empty", "full"


def look(paths: Sequence[str]) -> str:
    """Prints a line for each: ``none``, ``empty`` (a folder with nothing in it) or ``full`` (else), and the path."""
    return f"""for one in {shlex.join(paths)}; do
if [ -L "$one" ]; then echo "{FULL} $one"
elif [ -d "$one" ] && [ -z "$(ls -A "$one")" ]; then echo "{EMPTY} $one"
elif [ -e "$one" ]; then echo "{FULL} $one"
else echo "{NONE} $one"; fi; done"""


def seen(output: str, paths: Sequence[str]) -> dict[str, str]:
    """What :func:`look` printed, by path. A line that is none of its own, as a shell's greeting, is passed over."""
    known = {f"{what} {path}": (path, what) for path in paths for what in (NONE, EMPTY, FULL)}
    return dict(known[line] for line in output.split("\n") if line in known)


WHO = f'echo "user $(id -u)"; echo "claim $(cat {CLAIM} 2>/dev/null)"'
"""Prints who runs commands there, and the run that has claimed the host, if there is one."""


def who(output: str) -> tuple[str, str]:
    """The user's number and the run, from what :data:`WHO` printed, maybe behind a shell's greeting."""
    *_, user, claimed = ["", "", *output.rstrip("\n").split("\n")]
    return user.removeprefix("user "), claimed.removeprefix("claim").strip()


def claim(run_id: str) -> str:
    """Fails while the host is claimed, with exit code 22 and the other run's id."""
    return (
        f"(set -C; echo {shlex.quote(run_id)} > {CLAIM}) 2>/dev/null || {{ cat {CLAIM} >&2; exit 22; }}; "
        f"[ -s {CLAIM} ] || {{ rm -f {CLAIM}; echo no room for {CLAIM} >&2; exit 23; }}"
    )


def _ours(run_id: str) -> str:
    return f'[ "$(cat {CLAIM} 2>/dev/null)" = {shlex.quote(run_id)} ] || exit 0'


def guarded(run_id: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The same, as long as the host is this run's."""
    return ("sh", "-c", f"{_ours(run_id)}\n{shlex.join(argv)}")


@dataclass(frozen=True)
class Made:
    """What a run makes on a host: ``removed`` was not there before, ``emptied`` are folders that were empty, and
    ``folders``, the deepest first, lie around them and were not there either.
    """

    removed: Sequence[str]
    emptied: Sequence[str]
    folders: Sequence[str]


def clean(run_id: str, made: Made) -> tuple[str, ...]:
    """Ends all that the run has started, lifts all rules, and removes what it has made. May be repeated."""
    chains = "\n".join(
        f"for tables in {firewall.FOUR} {firewall.SIX}; do "
        f"for way in INPUT OUTPUT; do while $tables -w -D $way -j {chain} 2>/dev/null; do :; done; done; "
        f"$tables -w -F {chain} 2>/dev/null; $tables -w -X {chain} 2>/dev/null; done"
        for chain in (firewall.CHAIN, firewall.FROZEN)
    )
    mark = shlex.quote(f"{MARK}={run_id}")
    parts = [
        _ours(run_id),
        f"for file in {process.FOLDER}/*.pid; do name=${{file##*/}} name=${{name%.pid}}",
        f"{process.if_there(process.kill('$name'))} || exit; done",
        # What has just been started by one of them is not among those that were found, hence until none is.
        f'tries=0; while found=$(grep -lzxF {mark} /proc/[0-9]*/environ 2>/dev/null); [ "$found" ]; do '
        'for one in $found; do one=${one#/proc/}; kill -KILL "${one%/environ}" 2>/dev/null; done; '
        f"tries=$((tries + 1)); [ $tries -gt {process.GONE_WITHIN * 20} ] "
        "&& { echo processes of the run do not end >&2; exit 25; }; sleep 0.05; done",
        shlex.join(packets.UNSHAPE),
        chains,
        f"{{ {firewall.FOUR} -w -S; {firewall.SIX} -w -S; }} 2>/dev/null "
        f"| grep -q -e ' {firewall.CHAIN}$' -e ' {firewall.CHAIN} ' "
        "&& { echo rules of the run are left >&2; exit 24; }",
        f"rm -rf --one-file-system -- {shlex.join(made.removed)} || exit" if made.removed else "",
        f"find {shlex.join(made.emptied)} -xdev -mindepth 1 -delete || exit" if made.emptied else "",
        f"rmdir -- {shlex.join(made.folders)} 2>/dev/null" if made.folders else "",
        f"rm -f {CLAIM}",
    ]
    return ("sh", "-c", "\n".join(filter(None, parts)))


def needs(address: str) -> str:
    """Prints what a node needs of the host at this address, a word and a value in each line."""
    return f"""
echo user $(id -u)
echo python $(python3 -c 'import sys; print(sys.version_info >= (3, 10) and "yes" or "no")' 2>/dev/null || echo no)
echo iptables $({firewall.tables(address)} -w -nL INPUT >/dev/null 2>&1 && echo yes || echo no)
echo pkill $(command -v pkill || echo no)
echo setsid $(command -v setsid || echo no)
"""


CLOCKS = "python3 -c 'import time; print(time.time(), time.monotonic())'"
"""The wall clock, and the one that events are timed by."""
