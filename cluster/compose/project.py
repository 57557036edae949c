"""The services of a Compose file, as Compose's own command reads it.

Compose resolves variables, ``.env``, ``extends``, ``include`` and override files, and prints the result as YAML
(``docker compose config``). This module turns that into one :class:`Service` for each service, and rejects by name each
setting that a run cannot carry out. The run starts the containers itself, so no running stack of the same file is
touched.

The format is that of the Compose Specification (https://github.com/compose-spec/compose-spec). Compose 1.29 prints the
short forms of the file; later versions print the long forms only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from assay.cluster.containers import Container, ImageBuild, parse_health_command, parse_stop_signal
from assay.cluster.system import DeploymentError

COMMANDS: Final = (("docker", "compose"), ("docker-compose",))
"""The commands of Compose, the current one first. Version 1.29 has the second only."""
READ_SECONDS: Final = 60
"""Maximum seconds for a command of Compose."""
OVERRIDDEN: Final = {
    name: f"{Path(name).stem}.override"
    for name in ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
}
"""Names of files that Compose finds by itself, and the stems of the files that it then adds."""
SUFFIXES: Final = (".yaml", ".yml")

IGNORED_BUILD: Final = ("cache_from", "cache_to", "labels", "network", "no_cache", "provenance", "pull", "sbom", "tags")
"""Settings of a build that do not change what the image does."""
UNUSED: Final = frozenset(
    {
        *("annotations", "attach", "container_name", "depends_on", "deploy", "develop", "expose", "healthcheck"),
        *("env_file", "extends", "init", "labels", "links", "logging", "networks", "platform", "ports", "profiles"),
        *("pull_policy", "read_only", "restart", "scale", "stdin_open", "stop_grace_period", "stop_signal", "tty"),
    }
)
"""Settings that describe no container of a run: they are read elsewhere in this module, or the run replaces them."""
MACHINE_PATHS: Final = ("/var/run/docker.sock", "/run/docker.sock", "/proc", "/sys", "/dev", "/")
"""Paths of the machine itself. A container with them could change the machine, so they are never mounted."""
COMPLETED: Final = "service_completed_successfully"
"""Condition of a dependency whose process must have ended with code 0."""
NO_MOUNT: Final = "a run has containers of its own and changes nothing else"


class ComposeError(DeploymentError):
    """A Compose file cannot be read or carried out. The message names the file, the service and the setting."""


@dataclass(frozen=True)
class Dependency:
    """A service that must be in a condition before another one starts.

    A run waits until each service is ready, or has ended if one waits for its end.
    """

    service: str
    condition: str = "service_started"


@dataclass(frozen=True)
class Service:
    """A service of the file.

    - ``count``: number of replicas
    - ``ends``: whether another service waits until this one has ended (``service_completed_successfully``)
    """

    name: str
    container: Container
    count: int = 1
    depends_on: Sequence[Dependency] = ()
    ends: bool = False


@dataclass(frozen=True)
class Project:
    """All services that the file starts, each after those on which it depends."""

    file: Path
    services: Mapping[str, Service] = field(default_factory=dict)


def read_project(file: Path, profiles: Sequence[str] = ()) -> Project:
    """Reads a Compose file by Compose's own command. Raises :class:`ComposeError`.

    - ``profiles``: profiles whose services are started, too
    """
    import yaml  # the clients' container has the services as they were read here, and not this package

    if not file.is_file():
        raise ComposeError(f"{file.absolute()} is not a file; next to your module it is Path(__file__).parent / ...")
    files = [file.resolve(), *_find_overrides(file.resolve())]
    text = _run_compose(files, profiles)
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ComposeError(f"{file}: Compose printed no YAML: {error}") from error
    return parse_project(file, found, profiles)


def _find_overrides(file: Path) -> list[Path]:
    """Returns the override file that Compose adds to a file with a standard name."""
    stem = OVERRIDDEN.get(file.name)
    candidates = [file.with_name(f"{stem}{suffix}") for suffix in SUFFIXES] if stem else []
    return [path for path in candidates if path.is_file()][:1]


def find_command() -> tuple[str, ...]:
    """Returns the command of Compose. Raises :class:`ComposeError` if there is none."""
    for command in COMMANDS:
        if shutil.which(command[0]) is None:
            continue
        try:
            found = subprocess.run([*command, "version"], capture_output=True, timeout=READ_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if found.returncode == 0:
            return command
    raise ComposeError(
        "no command of Compose was found, and the file is read by it: install Docker's Compose plugin "
        "(`docker compose version` shows it), or Debian's package docker-compose"
    )


def _run_compose(files: Sequence[Path], profiles: Sequence[str]) -> str:
    command = [*find_command()]
    for path in files:
        command += ["-f", str(path)]
    for profile in profiles:
        command += ["--profile", profile]
    environment = {name: value for name, value in os.environ.items() if name != "COMPOSE_FILE"}
    try:
        done = subprocess.run(
            [*command, "config"],
            cwd=files[0].parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=READ_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ComposeError(f"{files[0]}: `{shlex.join(command)} config` failed: {error}") from error
    if done.returncode != 0:
        raise ComposeError(f"{files[0]}: `{shlex.join(command)} config` failed: {done.stderr.strip()}")
    return done.stdout


def parse_project(file: Path, found: Any, profiles: Sequence[str] = ()) -> Project:
    """Returns the project that Compose's output describes. Raises :class:`ComposeError`."""
    if not isinstance(found, Mapping) or not isinstance(found.get("services"), Mapping):
        raise ComposeError(f"{file} has no services")
    found = _unescape(found)
    reader = _Reader(file, found)
    active = {
        name: given
        for name, given in found["services"].items()
        if not given.get("profiles") or set(given["profiles"]) & {*profiles}
    }
    services = {name: reader.read_service(name, given) for name, given in active.items()}
    ending = {needed.service for one in services.values() for needed in one.depends_on if needed.condition == COMPLETED}
    services = {name: replace(one, ends=name in ending) for name, one in services.items()}
    if not services:
        raise ComposeError(f"{file}: each service belongs to a profile: name the profiles (`profiles=`)")
    return Project(file, {name: services[name] for name in sort_by_dependency(file, services)})


def _unescape(value: Any) -> Any:
    """Returns Compose's output as it is meant: ``$$`` is a dollar sign in each text."""
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, Mapping):
        return {key: _unescape(item) for key, item in value.items()}
    return [_unescape(item) for item in value] if isinstance(value, list) else value


def sort_by_dependency(file: Path, services: Mapping[str, Service]) -> list[str]:
    """Returns the names of services, each after those on which it depends. Raises :class:`ComposeError` at a circle."""
    placed: dict[str, None] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ComposeError(f"{file}: services depend on each other in a circle: {' -> '.join((*path, name))}")
        for needed in services[name].depends_on:
            if needed.service in services and needed.service not in placed:
                place(needed.service, (*path, name))
        placed[name] = None

    for name in services:
        if name not in placed:
            place(name, ())
    return list(placed)


class _Reader:
    """Turns the settings of services into containers."""

    def __init__(self, file: Path, found: Mapping[str, Any]) -> None:
        self._file = file
        self._found = found

    def read_service(self, name: str, given: Mapping[str, Any]) -> Service:
        container = Container(
            names=self._read_names(name, given),
            health_command=self._read_health(name, given.get("healthcheck") or {}),
            stop_signal=self._read_stop_signal(name, given.get("stop_signal")),
            restarted=given.get("restart") not in (None, False, "no"),
        )
        for key, value in given.items():
            if key in UNUSED or key.startswith("x-") or value is None or value in ([], {}, False, ""):
                continue
            if key not in SETTINGS:
                raise self._error(name, key, "a run cannot carry it out: leave it out in a copy of the file")
            container = SETTINGS[key](self, name, container, value)
        if container.image is None and container.build is None:
            raise self._error(name, "image", "it has neither an image nor a build")
        deploy = given.get("deploy") or {}
        limits = (deploy.get("resources") or {}).get("limits") or {}
        for key, value in limits.items():
            if LIMITS.get(key) not in given and value:
                container = SETTINGS[LIMITS[key]](self, name, container, value)
        return Service(
            name,
            container,
            int(given.get("scale") or deploy.get("replicas") or 1),
            self._read_dependencies(name, given.get("depends_on") or []),
        )

    def _error(self, service: str, setting: str, reason: str) -> ComposeError:
        return ComposeError(f"{self._file}: {setting} of the service {service}: {reason}")

    def _read_names(self, name: str, given: Mapping[str, Any]) -> list[str]:
        """Returns all names of a service on its networks: its own, its container's, and its aliases."""
        networks = given.get("networks") or {}
        aliases = [
            alias
            for settings in (networks.values() if isinstance(networks, Mapping) else ())
            for alias in (settings or {}).get("aliases") or ()
        ]
        own = [given["container_name"]] if given.get("container_name") else []
        return list(dict.fromkeys([name, *own, *aliases]))

    def _read_dependencies(self, name: str, given: Any) -> list[Dependency]:
        if isinstance(given, Mapping):
            return [Dependency(key, (value or {}).get("condition", "service_started")) for key, value in given.items()]
        return [Dependency(key) for key in given]

    def _read_health(self, name: str, given: Mapping[str, Any]) -> list[str] | None:
        test = given.get("test") or []
        if given.get("disable") or test == "NONE":
            return []
        try:
            return parse_health_command(["CMD-SHELL", test] if isinstance(test, str) else test)
        except ValueError as error:
            raise self._error(name, "healthcheck", str(error)) from error

    def _read_stop_signal(self, name: str, given: Any) -> str | None:
        if given is not None:
            try:
                parse_stop_signal(str(given))
            except ValueError as error:
                raise self._error(name, "stop_signal", str(error)) from error
        return None if given is None else str(given)

    def read_build(self, name: str, container: Container, given: Any) -> Container:
        settings = {"context": given} if isinstance(given, str) else dict(given)
        context, file = settings.pop("context", "."), settings.pop("dockerfile", "Dockerfile")
        arguments, target = settings.pop("args", None) or {}, settings.pop("target", None)
        settings = {key: value for key, value in settings.items() if value and key not in IGNORED_BUILD}
        if settings:
            raise self._error(name, "build", f"a run cannot carry out {', '.join(sorted(settings))}")
        if not Path(context).is_dir():
            raise self._error(name, "build", f"its context {context} is not a folder of this machine")
        pairs = tuple(sorted(self.read_pairs(name, "build", arguments).items()))
        build = ImageBuild(Path(context), file, pairs, target)
        return replace(container, build=build, image=None)

    def read_image(self, name: str, container: Container, given: str) -> Container:
        """With a build, the image's name is only the name of the result."""
        return container if container.build is not None else replace(container, image=given)

    def read_command(self, given: str | Sequence[str]) -> list[str]:
        return shlex.split(given) if isinstance(given, str) else [str(word) for word in given]

    def read_pairs(self, name: str, setting: str, given: Any) -> dict[str, str]:
        """Returns pairs that are a mapping or a list of ``name=value``. A variable without a value is left out."""
        if isinstance(given, Mapping):
            return {str(key): _to_text(value) for key, value in given.items() if value is not None}
        pairs = (str(entry).partition("=") for entry in given)
        return {key: value for key, separator, value in pairs if separator}

    def read_addresses(self, name: str, container: Container, given: Any) -> Container:
        if isinstance(given, Mapping):
            pairs = {key: value if isinstance(value, str) else value[0] for key, value in given.items()}
        else:
            pairs = dict(re.split("[:=]", entry, maxsplit=1) for entry in given)
        return replace(container, addresses=pairs)

    def read_volumes(self, name: str, container: Container, given: Sequence[Any]) -> Container:
        volumes, copied = dict(container.volumes), dict(container.copied)
        options = dict(container.options)
        for entry in given:
            kind, source, target, may_be_missing = _parse_volume(entry)
            if not target.startswith("/"):
                raise self._error(name, "volumes", f"{target} is not an absolute path")
            if kind == "tmpfs":
                options["tmpfs"] = {**options.get("tmpfs", {}), target: ""}
            elif kind == "bind" and may_be_missing and not Path(source).exists():
                volumes[target] = re.sub(r"[^\w.-]", "-", source.strip("/"))  # Compose would make an empty folder
            elif kind == "bind":
                copied[target] = self._find_source(name, source)
            elif kind == "volume":
                self._require_plain_volume(name, source)
                volumes[target] = source
            else:
                raise self._error(name, "volumes", f"{kind} is not a kind of mount that a run can carry out")
        return replace(container, volumes=volumes, copied=copied, options=options)

    def _find_source(self, name: str, source: str) -> Path:
        path = Path(source)
        if os.path.normpath(source) in MACHINE_PATHS:
            raise self._error(name, "volumes", f"{source} belongs to this machine, and {NO_MOUNT}")
        if not path.exists():
            raise self._error(name, "volumes", f"{source} does not exist on this machine, so it cannot be copied")
        return path

    def _require_plain_volume(self, name: str, source: str) -> None:
        declared = (self._found.get("volumes") or {}).get(source) or {}
        if declared.get("driver_opts") or declared.get("driver") not in (None, "local"):
            raise self._error(name, "volumes", f"the volume {source} has a driver of its own, and {NO_MOUNT}")

    def read_tmpfs(self, name: str, container: Container, given: str | Sequence[str]) -> Container:
        entries = [given] if isinstance(given, str) else given
        mounted = {path: options for path, _, options in (entry.partition(":") for entry in entries)}
        return _with_options(container, tmpfs={**container.options.get("tmpfs", {}), **mounted})

    def read_copies(self, kind: str) -> Callable[[str, Container, Sequence[Any]], Container]:
        """Returns the reader of ``configs`` or ``secrets``: files that the container gets."""

        def read(name: str, container: Container, given: Sequence[Any]) -> Container:
            copied = dict(container.copied)
            for entry in given:
                source = entry if isinstance(entry, str) else entry["source"]
                default = f"/run/secrets/{source}" if kind == "secrets" else f"/{source}"
                target = default if isinstance(entry, str) else entry.get("target") or default
                if not target.startswith("/"):
                    target = f"/run/secrets/{target}" if kind == "secrets" else f"/{target}"
                declared = (self._found.get(kind) or {}).get(source) or {}
                copied[target] = self._read_source(name, kind, source, declared)
            return replace(container, copied=copied)

        return read

    def _read_source(self, name: str, kind: str, source: str, declared: Mapping[str, Any]) -> Path | bytes:
        """Returns the file, or the contents, of a config or secret."""
        if declared.get("file"):
            return self._find_source(name, declared["file"])
        if declared.get("content") is not None:
            return str(declared["content"]).encode()
        if (variable := declared.get("environment")) is None:
            raise self._error(name, kind, f"{source} has neither a file nor a text nor a variable")
        if variable not in os.environ:
            raise self._error(
                name, kind, f"the variable {variable}, which {source} takes, is not set in the environment"
            )
        return os.environb[os.fsencode(variable)]

    def read_ulimits(self, name: str, container: Container, given: Mapping[str, Any]) -> Container:
        limits = [
            {"Name": key, "Soft": value, "Hard": value}
            if isinstance(value, int)
            else {"Name": key, "Soft": value["soft"], "Hard": value["hard"]}
            for key, value in given.items()
        ]
        return _with_options(container, ulimits=limits)


def _to_text(value: object) -> str:
    """Returns a value of YAML as the text of a variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_options(container: Container, **options: Any) -> Container:
    return replace(container, options={**container.options, **options})


def _parse_volume(entry: Any) -> tuple[str, str, str, bool]:
    """Returns kind, source and target of a mount, and whether Compose makes the source if it is missing.

    The source of an anonymous volume is empty. A source from which the container only reads must exist.
    """
    if isinstance(entry, Mapping):
        made = bool((entry.get("bind") or {}).get("create_host_path")) and not entry.get("read_only")
        return entry.get("type", "volume"), entry.get("source") or "", entry["target"], made
    source, _, rest = str(entry).partition(":")
    if not rest:
        return "volume", "", source, False
    target, _, mode = rest.partition(":")
    is_bind = source.startswith(("/", ".", "~"))
    return "bind" if is_bind else "volume", source, target, is_bind and "ro" not in mode.split(",")


_Setting = Callable[[_Reader, str, Container, Any], Container]


def _take(attribute: str, convert: Callable[[_Reader, Any], Any] = lambda reader, given: str(given)) -> _Setting:
    """Returns the reader of a setting that becomes one attribute of a :class:`Container`."""
    return lambda reader, name, container, given: replace(container, **{attribute: convert(reader, given)})


def _pass_on(option: str, convert: Callable[[Any], Any] = lambda given: given) -> _Setting:
    """Returns the reader of a setting that is an option of the container's target."""
    return lambda reader, name, container, given: _with_options(container, **{option: convert(given)})


LIMITS: Final = {"memory": "mem_limit", "cpus": "cpus", "pids": "pids_limit"}
"""Maps each limit of ``deploy.resources`` to the setting that means the same."""
SETTINGS: Final[Mapping[str, _Setting]] = {
    "build": _Reader.read_build,
    "cap_add": _pass_on("cap_add"),
    "cap_drop": _pass_on("cap_drop"),
    "command": _take("command", _Reader.read_command),
    "configs": lambda reader, name, container, given: reader.read_copies("configs")(name, container, given),
    "cpu_period": _pass_on("cpu_period", int),
    "cpu_quota": _pass_on("cpu_quota", int),
    "cpu_shares": _pass_on("cpu_shares", int),
    "cpus": _pass_on("nano_cpus", lambda given: round(float(given) * 1e9)),
    "cpuset": _pass_on("cpuset_cpus"),
    "entrypoint": _take("entrypoint", _Reader.read_command),
    "environment": lambda reader, name, container, given: replace(
        container, environment=reader.read_pairs(name, "environment", given)
    ),
    "extra_hosts": _Reader.read_addresses,
    "group_add": _pass_on("group_add", lambda given: [str(group) for group in given]),
    "hostname": _take("host_name"),
    "image": _Reader.read_image,
    "mem_limit": _pass_on("mem_limit"),
    "mem_reservation": _pass_on("mem_reservation"),
    "memswap_limit": _pass_on("memswap_limit"),
    "oom_score_adj": _pass_on("oom_score_adj", int),
    "pids_limit": _pass_on("pids_limit", int),
    "secrets": lambda reader, name, container, given: reader.read_copies("secrets")(name, container, given),
    "security_opt": _pass_on("security_opt"),
    "shm_size": _pass_on("shm_size"),
    "sysctls": lambda reader, name, container, given: replace(
        container, kernel_settings=reader.read_pairs(name, "sysctls", given)
    ),
    "tmpfs": _Reader.read_tmpfs,
    "ulimits": _Reader.read_ulimits,
    "user": _take("user"),
    "volumes": _Reader.read_volumes,
    "working_dir": _take("folder"),
}
"""Maps each setting of a container to its reader. Every other setting is rejected by name, except ``UNUSED`` ones."""
