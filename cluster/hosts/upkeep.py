"""Shell commands that root runs on a host before a run and after it. Nothing here connects to a machine.

A run claims a host: it writes its id into a file, which survives a reboot. Every undo command checks this id first, so
that no run removes files of another run. The claim is removed last.
"""

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from assay.cluster.ssh import firewall, packets, process

CLAIM = "/var/lib/assay-claim"
"""File with the id of the run that uses the host."""
RUN_VARIABLE = "ASSAY_RUN"
"""Environment variable with the run's id. All processes that a run starts inherit it, even detached ones."""
OWN_FOLDERS = (process.FOLDER, process.LOG.rpartition("/")[0])
"""Folders of the harness's own files."""
MOUNTS = "/proc/self/mountinfo"
"""File with the mount points of a host."""


class PathError(ValueError):
    """A run may not create and remove this path. The message says why."""


def require_removable(path: str) -> str:
    """Returns the path if it is absolute, normalized, printable and at least two levels deep.

    Otherwise raises :class:`PathError`.
    """
    if not path.startswith("/") or posixpath.normpath(path) != path or not path.isprintable():
        raise PathError(f"{path!r} is not a normalized absolute path")
    if len(PurePosixPath(path).parts) < 3:
        raise PathError(f"{path} lies at the top: name a file or a folder inside of it, which a run may remove")
    return path


def list_parents(paths: Sequence[str]) -> list[str]:
    """Returns all parent folders of the paths, the deepest first."""
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"/"}
    return sorted(folders, key=lambda folder: (-len(PurePosixPath(folder).parts), folder))


NONE, EMPTY, FULL, UNREADABLE = "none", "empty", "full", "unreadable"


def path_states_command(paths: Sequence[str]) -> str:
    """Returns the command that prints a line for each path: its state and the path.

    The state is ``none``, ``empty`` (an empty folder), ``full`` (everything else), or ``unreadable`` if an error hides
    what is there.
    """
    # `test` answers "no" after any error, so only the message of `ls` proves that a path does not exist.
    # Without `-q`, a name that consists of line ends would look like no name.
    return f"""for one in {shlex.join(paths)}; do
if [ -L "$one" ]; then echo "{FULL} $one"
elif [ -d "$one" ]; then
if ! names=$(ls -Aq "$one"); then echo "{UNREADABLE} $one"
elif [ "$names" ]; then echo "{FULL} $one"
else echo "{EMPTY} $one"; fi
elif [ -e "$one" ]; then echo "{FULL} $one"
else case $(LC_ALL=C ls -d "$one" 2>&1) in
*": No such file or directory" | *": Not a directory") echo "{NONE} $one";;
*) echo "{UNREADABLE} $one";; esac; fi; done"""


def parse_path_states(output: str, paths: Sequence[str]) -> dict[str, str]:
    """Parses the output of :func:`path_states_command`, by path.

    Other lines, such as a shell's greeting, are skipped.
    """
    known = {f"{what} {path}": (path, what) for path in paths for what in (NONE, EMPTY, FULL, UNREADABLE)}
    return dict(known[line] for line in output.split("\n") if line in known)


_FILE_SYSTEM = (
    'file_system() { at=$1; while [ -L "$at" ] || [ ! -e "$at" ]; do at=${at%/*} at=${at:-/}; done; '
    'LC_ALL=C df --output=source,target "$at" | tail -n 1; }'
)
"""Shell function that prints the device and the mount point of a path. A missing path has those of its parent."""


def file_systems_command(paths: Sequence[str]) -> str:
    """Returns the command that prints device and mount point of each path, for :func:`parse_numbered`."""
    return "\n".join((_FILE_SYSTEM, _number_lines('$(file_system "$one")', paths)))


def owners_command(folders: Sequence[str]) -> str:
    """Returns the command that prints owner, group and mode of each folder, for :func:`parse_numbered`."""
    return _number_lines('$(stat -c "%u:%g %a" -- "$one")', folders)


def _number_lines(found: str, paths: Sequence[str]) -> str:
    return f'number=0; for one in {shlex.join(paths)}; do echo "path $number {found}"; number=$((number + 1)); done'


def parse_numbered(output: str, paths: Sequence[str]) -> dict[str, str]:
    """Parses lines of ``path``, the number of a path, and what was found. A path without the latter is missing."""
    prefixes = [(path, f"path {number} ") for number, path in enumerate(paths)]
    found = {
        path: line.removeprefix(prefix)
        for path, prefix in prefixes
        for line in output.split("\n")
        if line.startswith(prefix)
    }
    return {path: text for path, text in found.items() if text}


WHO_COMMAND = f'echo "user $(id -u)"; echo "claim $(cat {CLAIM} 2>/dev/null)"'
"""Prints the user who runs commands, and the run that has claimed the host, if any."""


def parse_who(output: str) -> tuple[str, str]:
    """Parses the output of :data:`WHO_COMMAND`: user id and run. A shell's greeting may precede it."""
    *_, user, claimed = ["", "", *output.rstrip("\n").split("\n")]
    return user.removeprefix("user "), claimed.removeprefix("claim").strip()


def claim_command(run_id: str) -> str:
    """Returns the command that claims the host. It prints the other run's id and exits with 22 if there is a claim."""
    return (
        f"(set -C; echo {shlex.quote(run_id)} > {CLAIM}) 2>/dev/null || {{ cat {CLAIM} >&2; exit 22; }}; "
        f"[ -s {CLAIM} ] || {{ rm -f {CLAIM}; echo no room for {CLAIM} >&2; exit 23; }}"
    )


def _exit_unless_claimed(run_id: str) -> str:
    # An unreadable claim may be this run's, so it must not count as undone.
    return (
        f"if [ -e {CLAIM} ]; then claim=$(cat {CLAIM}) || exit; else claim=; fi\n"
        f'[ "$claim" = {shlex.quote(run_id)} ] || exit 0'
    )


def guard_command(run_id: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Returns a command that does nothing unless the host is claimed by this run."""
    return ("sh", "-c", f"{_exit_unless_claimed(run_id)}\n{shlex.join(argv)}")


@dataclass(frozen=True)
class CreatedPaths:
    """Paths that a run creates on a host, and that are removed after it.

    - ``removed``: paths that did not exist before
    - ``emptied``: folders that were empty before
    - ``folders``: parent folders that did not exist before, the deepest first
    - ``file_systems``: for each of ``removed`` and ``emptied``, device and mount point at the start of the run
    - ``owners``: for each of ``emptied``, owner, group and mode at the start of the run
    """

    removed: Sequence[str]
    emptied: Sequence[str]
    folders: Sequence[str]
    file_systems: Mapping[str, str]
    owners: Mapping[str, str]


def _exit_at_mounts(created: CreatedPaths) -> str:
    """Returns the command that ends a clean-up before it deletes files that were mounted after the start of the run.

    ``--one-file-system`` and ``-xdev`` do not suffice: they delete from a mount at the path itself, and from a folder
    of the same device that is mounted below it.
    """
    checks = [
        f"require_own {shlex.quote(path)} {shlex.quote(created.file_systems.get(path, ''))}"
        for path in (*created.removed, *created.emptied)
    ]
    advice = f"unmount it, or remove the files of the run and {CLAIM} by hand; then run \\`assay heal\\`"
    return f"""{_FILE_SYSTEM}
points=$(while read -r _ _ _ _ point _; do printf '%b\\n' "$point"; done < {MOUNTS}) || exit
require_own() {{
found=$(file_system "$1")
[ "$found" = "$2" ] || {{ echo "$1 is on $found, and was on $2 at the start of the run: {advice}" >&2; exit 26; }}
[ ! -L "$1" ] || return 0
real=$(readlink -m -- "$1") || exit
while IFS= read -r point; do case $point in "$real"/*)
echo "$point is mounted inside of $1: {advice}" >&2; exit 26;; esac; done <<POINTS
$points
POINTS
}}
{chr(10).join(checks)}"""


def _restore_owner(folder: str, owner: str) -> str:
    """Returns the command that gives a folder its owner and mode, unless the system has put a link in its place."""
    names, _, mode = owner.partition(" ")
    path = shlex.quote(folder)
    return f"[ -L {path} ] || {{ chown {shlex.quote(names)} {path} && chmod {shlex.quote(mode)} {path}; }} || exit"


def clean_command(run_id: str, created: CreatedPaths) -> tuple[str, ...]:
    """Returns the command that ends all processes of the run, and removes its rules and its files. Idempotent."""
    # `CHAIN` has the rules of the faults, and `FROZEN` silences a machine before it is frozen.
    chains = "\n".join(
        f"for tables in {firewall.FOUR} {firewall.SIX}; do "
        f"for way in INPUT OUTPUT; do while $tables -w -D $way -j {chain} 2>/dev/null; do :; done; done; "
        f"$tables -w -F {chain} 2>/dev/null; $tables -w -X {chain} 2>/dev/null; done"
        for chain in (firewall.CHAIN, firewall.FROZEN)
    )
    mark = shlex.quote(f"{RUN_VARIABLE}={run_id}")
    parts = [
        _exit_unless_claimed(run_id),
        f"for file in {process.FOLDER}/*.pid; do name=${{file##*/}} name=${{name%.pid}}",
        f"{process.tolerate_missing(process.kill_command('$name'))} || exit; done",
        # A found process may have just started another one, so the search repeats until it finds none.
        f'tries=0; while found=$(grep -lzxF {mark} /proc/[0-9]*/environ 2>/dev/null); [ "$found" ]; do '
        'for one in $found; do one=${one#/proc/}; kill -KILL "${one%/environ}" 2>/dev/null; done; '
        f"tries=$((tries + 1)); [ $tries -gt {process.SIGNAL_SECONDS * 20} ] "
        "&& { echo processes of the run do not end >&2; exit 25; }; sleep 0.05; done",
        shlex.join(packets.UNSHAPE),
        chains,
        f"{{ {firewall.FOUR} -w -S; {firewall.SIX} -w -S; }} 2>/dev/null "
        f"| grep -q -e ' {firewall.CHAIN}$' -e ' {firewall.CHAIN} ' "
        "&& { echo rules of the run are left >&2; exit 24; }",
        _exit_at_mounts(created),
        f"rm -rf --one-file-system -- {shlex.join(created.removed)} || exit" if created.removed else "",
        f"find {shlex.join(created.emptied)} -xdev -mindepth 1 -delete || exit" if created.emptied else "",
        *(_restore_owner(folder, created.owners[folder]) for folder in created.emptied),
        f"rmdir -- {shlex.join(created.folders)} 2>/dev/null" if created.folders else "",
        f"rm -f {CLAIM}",
    ]
    return ("sh", "-c", "\n".join(filter(None, parts)))


def node_needs_command(address: str) -> str:
    """Returns the command that prints which needs of a node the host meets: in each line a name and a value."""
    return f"""
echo user $(id -u)
echo python $(python3 -c 'import sys; print(sys.version_info >= (3, 10) and "yes" or "no")' 2>/dev/null || echo no)
echo iptables $({firewall.filter_program(address)} -w -nL INPUT >/dev/null 2>&1 && echo yes || echo no)
echo pkill $(command -v pkill || echo no)
echo setsid $(command -v setsid || echo no)
"""
