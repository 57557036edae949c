"""Shell commands for a node's process: launch, signal, status. Nothing here connects to a machine.

The process leads its own session (``setsid``). It is identified by pid *and* start time, because pids are reused. The
process writes its pid file itself just before ``exec``, so a pid in the file was really started. Signals also go to all
descendants of the process: to its session, and to children with sessions of their own (as PostgreSQL has them), while
their parents live.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from signal import Signals
from typing import Final

from assay.cluster.node import ProcessState, ProcessStatus

FOLDER = "/run/assay"
LOG = "/var/log/assay/process.log"
"""File with standard output and error of all incarnations of the main process, one after the other."""
MAIN = "main"
"""Name of the process that every node has."""

SIGNAL_SECONDS = 10
"""Maximum seconds until /proc shows a signal's effect. A process in uninterruptible sleep dies only after its call."""


def log_path(process: str) -> str:
    """Returns the path of a process's standard output and error."""
    return LOG if process == MAIN else f"{LOG.rpartition('/')[0]}/{process}.log"


def pid_path(process: str) -> str:
    """Returns the path of a process's pid file."""
    return f"{FOLDER}/{process}.pid"


def _identify(process: str) -> str:
    """Returns commands that set ``$pid``, ``$began`` and ``$state``. ``$state`` is empty without a process."""
    pid = pid_path(process)
    return f"""
pid= began=
[ -s {pid} ] && read -r pid began < {pid}
now=$(sed 's/.*) //' /proc/$pid/stat 2>/dev/null) || now=
set -- $now
state=$1
[ -n "$pid" ] && [ "${{20}}" = "$began" ] || state=
"""


# sed strips "pid (name) ". The state is the first field of the rest. The start time, field 22 of proc(5), is the 20th.


IGNORED: Final = (Signals.SIGINT, Signals.SIGQUIT)
"""Signals that a background process of a shell ignores. A shell cannot reset them."""
RESET_SIGNALS: Final = """
import os, signal, sys
for one in ("SIGINT", "SIGQUIT", "SIGPIPE", "SIGXFSZ"):  # the last two are what an interpreter itself ignores
    signal.signal(getattr(signal, one), signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Program that resets these signals, and executes its arguments."""


def launch_command(
    argv: Sequence[str],
    *,
    folder: str,
    environment: Mapping[str, str],
    user: str | None = None,
    owned: Sequence[str] = (),
    needed: Sequence[str] = (),
    process: str = MAIN,
    stop_signal: Signals = Signals.SIGTERM,
) -> str:
    """Returns the command that starts a process. It fails if the process is alive already.

    The command ends when the process is about to execute ``argv``.

    - ``stop_signal``: the process starts with the default handler of this signal, even if the shell ignores it.
    - ``user``: ``name``, ``name:group`` or numbers, instead of root.
    - ``owned``: files, and folders (with a ``/`` at the end), that are created if missing and given to this user. For
      root only the folders are created, because root can create files anywhere.
    - ``needed``: like ``owned``, but only their folders are created, and their owner does not change.
    """
    pid, output = pid_path(process), log_path(process)
    settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(environment.items()))
    record = "set -- $$ \"$@\"; began=$(sed 's/.*) //' /proc/$1/stat | cut -d' ' -f20)"
    record += f'; echo "$1 $began" > {pid}.new; shift; mv {pid}.new {pid}; exec "$@"'
    reset = f"python3 -Ic {shlex.quote(RESET_SIGNALS)} " if stop_signal in IGNORED else ""
    folders = _make_folders([*needed, *owned] if user is None else needed)
    become = "" if user is None else _become(user, [*owned, output])
    return f"""{_require_ended(process)}
mkdir -p {shlex.quote(folder)}
cd {shlex.quote(folder)} || exit 18
who= as=
{folders}
{become}
{reset}env $who {settings} setsid sh -c {shlex.quote(record)} main $as {shlex.join(argv)} </dev/null >>{output} 2>&1 &
tries=0
until [ -s {pid} ]; do
  tries=$((tries + 1)); [ $tries -gt 1000 ] && {{ tail -n 5 {output} >&2; exit 19; }}
  sleep 0.01
done
cat {pid}
"""


def launch_elsewhere_command(command: str, process: str = MAIN) -> str:
    """Returns the command that starts a process by ``command``, which writes the pid file.

    It fails if the process is alive already. It reads its standard input, text for ``command``, in any case.
    """
    return f"""given=$(cat)
{_require_ended(process)}
printf %s "$given" | {command}
"""


def _require_ended(process: str) -> str:
    """Returns commands that exit if the process is alive, and otherwise remove its pid file."""
    return f"""{_identify(process)}
case "$state" in ''|Z|X) ;; *) echo "process $pid is alive already (state $state)" >&2; exit 17;; esac
mkdir -p {FOLDER} {LOG.rpartition("/")[0]}
rm -f {pid_path(process)}
"""


def _make_folders(paths: Sequence[str]) -> str:
    """Returns the command that creates missing folders: ``paths`` that end in ``/``, and the parents of files."""
    folders = dict.fromkeys(path.rpartition("/")[0] for path in paths)
    return f"mkdir -p {shlex.join(filter(None, folders))} || exit 26" if any(folders) else ""


def _become(user: str, owned: Sequence[str]) -> str:
    """Returns commands that set two shell variables: ``$as``, a prefix that runs a program as the user, and ``$who``.

    ``$who`` is the user's part of the environment. As with the Docker engine, numeric users need not exist; they have
    group 0 then. The absolute path of setpriv is used because some shells prefer a built-in applet, which can do less.
    """
    name, _, group = user.partition(":")
    return f"""
user={shlex.quote(name)} group={shlex.quote(group)}
if uid=$(id -u "$user" 2>/dev/null); then groups=--init-groups; [ "$group" ] || group=$(id -g "$user")
else
  case $user in *[!0-9]*) echo "there is no user $user on this node" >&2; exit 25;; esac
  uid=$user groups=--clear-groups group=${{group:-0}}
fi
line=$(sed -n "/^$user:/p; /^[^:]*:[^:]*:$uid:/p" /etc/passwd | sed -n 1p)
home=${{line%:*}} home=${{home##*:}}
who="HOME=${{home:-/}} USER=${{line%%:*}} LOGNAME=${{line%%:*}}"
setpriv=/usr/local/bin/setpriv
[ -x $setpriv ] || setpriv=setpriv
as="$setpriv --reuid $uid --regid $group $groups"
for path in {shlex.join(owned)}; do
  case $path in
    */) mkdir -p "$path";;
    *) around=${{path%/*}}
      [ -d "$around" ] || {{ mkdir -p "$around" && chown $uid:$group "$around"; }} && : >> "$path";;
  esac && chown $uid:$group "$path" || exit 26
done
"""


TERMINATE_SECONDS = 15
"""Maximum seconds until a process that was asked to end has ended."""
MAX_LISTINGS = 8
"""Maximum number of listings of children while new ones appear. Some processes start others all the time."""


def _define_kin(until: str) -> str:
    """Returns the definition of the shell function ``kin``, which finds a process's descendants.

    The function adds the members of the session ``$sid``, and all their descendants, to ``$family``. It sets ``$left``
    to the members whose state is not in ``until``.
    """
    fields = r"s/^\([0-9]*\) (.*) \(.\) \([0-9]*\) [0-9]* \([0-9]*\) .*/\1 \3 \4 \2/p"
    return f"""family=" $sid "
kin() {{
  grown=1 looks=0
  while [ "$grown" ] && [ $looks -lt {MAX_LISTINGS} ]; do
    [ $looks -gt 0 ] && grown=
    left= looks=$((looks + 1))
    set -- $(sed -n '{fields}' /proc/[0-9]*/stat 2>/dev/null)
    while [ $# -gt 3 ]; do
      case "$family" in *" $1 "*) ;; *)
        case "$3 $family" in "$sid "*) family="$family$1 ";; *" $2 "*) family="$family$1 " grown=1;; esac;;
      esac
      case "$family" in *" $1 "*) case $4 in [{until}]) ;; *) left="$left $1";; esac;; esac
      shift 4
    done
  done
}}
"""


def signal_command(name: str, until: str, seconds: int = SIGNAL_SECONDS, process: str = MAIN) -> str:
    """Returns the command that sends a signal to the process and its children.

    It waits until the process's state is in ``until``. For KILL and STOP it also waits for the children. States are
    letters of proc(5); ``-`` means gone. A request to end skips children with sessions of their own, because the
    process ends them itself. The command fails (exit code 20) if there is no process.
    """
    identify = _identify(process)
    send, list_left = {
        # Children first: once the process is gone, they cannot be recognized as its children.
        "KILL": ("kin; kill -KILL $sid 2>/dev/null", "kin"),
        # Process first: a child stopped before its exec would keep the parent waiting.
        "STOP": ("kill -STOP $sid 2>/dev/null", "kin"),
        "CONT": ("kin; kill -CONT $family 2>/dev/null", "left="),
    }.get(name, (f"pkill -{name} -s $sid || kill -{name} $sid 2>/dev/null", "left="))
    return f"""{identify}
[ -n "$state" ] || {{ echo "the {process} process is not running" >&2; exit 20; }}
sid=$pid
{_define_kin(until)}{send}
tries=0
while :; do
{identify}
  case "${{state:--}}" in [{until}])
    {list_left}
    [ "$left" ] || exit 0
    kill -{name} $left 2>/dev/null
  esac
  tries=$((tries + 1)); [ $tries -gt {seconds * 100} ] && {{ echo "still in state $state" $left >&2; exit 21; }}
  sleep 0.01
done
"""


def list_family_command(process: str = MAIN) -> str:
    """Returns commands that set ``$left`` to the ids of the process and its descendants, each after a space.

    ``$left`` is empty if the process is dead.
    """
    return f"""{_identify(process)}
left= sid=$pid
case "$state" in ''|Z|X) ;; *)
{_define_kin("ZX")}kin;;
esac"""


def ending_command(command: str) -> str:
    """Wraps a command that ends the process ``$pid``: afterwards the remaining children are killed.

    The result fails (exit code 20) if there is no process.
    """
    return f"""{_identify(MAIN)}
[ -n "$state" ] || {{ echo "the main process is not running" >&2; exit 20; }}
sid=$pid
{_define_kin("ZX")}kin
{command} || exit
kin
[ -z "$left" ] || kill -KILL $left 2>/dev/null || true
"""


def kill_command(process: str = MAIN) -> str:
    """Returns the command that kills a process. ``process`` may be a shell variable that holds the process's name."""
    return signal_command("KILL", "ZX-", process=process)


def terminate_command(process: str = MAIN, by: Signals = Signals.SIGTERM) -> str:
    return signal_command(by.name.removeprefix("SIG"), "ZX-", TERMINATE_SECONDS, process)


def stop_command(process: str = MAIN) -> str:
    return signal_command("STOP", "TtZX-", process=process)


def resume_command(process: str = MAIN) -> str:
    return signal_command("CONT", "RSDIZX-", process=process)


def undo_stop_command(process: str = MAIN) -> tuple[str, ...]:
    """Returns the command that continues the process. It is no error if the process has died."""
    return ("sh", "-c", tolerate_missing(resume_command(process)))


def tolerate_missing(command: str) -> str:
    """Wraps a :func:`signal_command`: it is no error if there is no process."""
    return f"({command}) || [ $? -eq 20 ]"


UNDO_STOP = undo_stop_command()

PATTERN = re.compile(r"/[A-Za-z0-9_./*?@%+=:-]+")
"""Patterns that :func:`files_command` accepts: only ``*`` and ``?`` are special to the shell."""


def files_command(pattern: str) -> str:
    """Returns the command that prints size and path of each matching file. Skips a file that is removed meanwhile.

    Raises ``ValueError`` for an invalid pattern.
    """
    if PATTERN.fullmatch(pattern) is None:
        raise ValueError(f"{pattern!r} is not a pattern of absolute paths: let it begin with /")
    look = """stat -c '%s %n' "$file" || [ ! -e "$file" ] || exit"""
    return f"""for file in {pattern}; do if [ -f "$file" ]; then {look}; fi; done"""


def parse_files(output: str) -> dict[str, int]:
    """Parses the output of :func:`files_command`: maps each path to its size in bytes, sorted."""
    found = (line.split(" ", 1) for line in output.splitlines())
    return dict(sorted((path, int(size)) for size, path in found))


def status_command(process: str = MAIN) -> str:
    return f"""{_identify(process)}
echo "$state $pid $began"
"""


def parse_status(output: str) -> ProcessStatus:
    """Parses the output of :func:`status_command`."""
    fields = output.split()
    if len(fields) != 3 or fields[0] in "ZX":
        return ProcessStatus(ProcessState.DEAD)
    state = ProcessState.STOPPED if fields[0] in "Tt" else ProcessState.RUNNING
    return ProcessStatus(state, f"{fields[1]}.{fields[2]}")
