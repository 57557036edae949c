"""``assay init docker-compose.yml``: writes a test of the services of a Compose file.

The verb reads the file as a run does, and looks for images that :mod:`assay.harness.cli.known_images` knows.
"""

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, note, parse_positive, show
from assay.harness.cli.known_images import (
    KnownImage,
    find_account,
    find_data_folder,
    find_known,
    find_risk,
    parse_image_name,
)

if TYPE_CHECKING:
    from assay.cluster.compose.project import Project, Service

DESCRIPTION: Final = """\
Writes a test of the services of a Compose file, and prints the command that runs it. For the images of etcd, Redis,
Valkey and PostgreSQL the test is complete. For another image, the test has two functions to fill in.

  assay init docker-compose.yml              writes test_ROLE.py beside the file
  assay init docker-compose.yml --service=db tests this service
  assay init --image=etcd:3.7                also writes a Compose file of one service
"""
DEFAULT_FILES: Final = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
"""Names of a Compose file, in the order in which Compose looks for them."""
HTTP_PORT: Final = 8080
"""The port of a service that names none."""
STALLING: Final[Sequence[str]] = ("kill", "stop", "freeze", "restart", "partition", "power-loss", "disk-full")
"""Faults that stall a system with one node."""
STALLING_ALL: Final[Sequence[str]] = ("outage", "outage-power-loss")
"""Faults that stall a system with several nodes."""
WIDTH: Final = 88
"""Maximum length of a line of a test if it can be broken: the default of common formatters."""


def add(commands: Any) -> None:
    parser = commands.add_parser("init", help="write a test of the services of a Compose file, or of an image",
        description=DESCRIPTION)  # fmt: skip
    option = parser.add_argument
    option("file", type=Path, nargs="?", metavar="FILE", help="the Compose file (default: the one of this folder)")
    option("--image", metavar="NAME", help="write a Compose file of this image, and its test")
    option("--service", metavar="NAME", help="the service that clients use, or the name that numbered services share")
    option("--port", type=parse_positive, metavar="N", help="its port (default: the port of its image or in the file)")
    option("--output", type=Path, metavar="FILE", help="the test to write (default: test_ROLE.py beside the file)")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Subject:
    """The role that clients use, its services, and what is known about their image."""

    role: str
    services: Sequence["Service"]
    known: KnownImage | None

    @property
    def node_count(self) -> int:
        return sum(service.count for service in self.services)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.compose.project import read_project

    if arguments.image is not None:
        if arguments.file is not None:
            raise InputError("give either a Compose file or --image")
        file = _write_compose_file(arguments)
    else:
        file = arguments.file or _find_file(Path())
    subject = choose_subject(read_project(file), arguments.service)
    output = arguments.output or file.parent / f"test_{to_identifier(subject.role)}.py"
    _write_new(output, write_test(subject, file, output, arguments.port))
    for line in describe_next_steps(subject, output):
        show(line)
    return ExitCode.PASS


def _find_file(folder: Path) -> Path:
    """Returns the Compose file of a folder. Raises :class:`InputError` if there is none."""
    for name in DEFAULT_FILES:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"this folder has no {', '.join(DEFAULT_FILES)}: name the Compose file, or an image with --image")


def _write_new(path: Path, text: str) -> None:
    """Writes a file that does not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists and is left as it is; name another file with --output=FILE") from None


def _write_compose_file(arguments: argparse.Namespace) -> Path:
    """Writes a Compose file with one service for an image, and returns its path."""
    import yaml

    known, name = find_known(arguments.image), parse_image_name(arguments.image)
    role = arguments.service or (known.name if known else name)
    if re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", role) is None:
        raise InputError(f"{arguments.image!r} is not the name of an image, such as etcd:3.7")
    service: dict[str, Any] = {"image": arguments.image}
    if known is not None:
        service |= {key: value for key, value in known.service.items() if value}
        service |= {"volumes": [f"data:{known.folder}"]}
    elif arguments.port is not None:
        service |= {"expose": [str(arguments.port)]}
    content = {"version": "3.8", "services": {role: service}} | ({"volumes": {"data": {}}} if known else {})
    folder = arguments.output.parent if arguments.output else Path()
    output = arguments.output or folder / f"test_{to_identifier(role)}.py"
    if output.exists():  # before a file is written
        raise InputError(f"{output} exists and is left as it is; name another file with --output=FILE")
    path = folder / f"compose-{role}.yml"
    if path.exists():
        raise InputError(f"{path} exists and is left as it is; give it to `assay init`, or name --output=FOLDER/FILE")
    _write_new(path, yaml.safe_dump(content, sort_keys=False))
    note(f"wrote {path}, a Compose file of one service: extend it as you need")
    return path


def to_identifier(role: str) -> str:
    return re.sub(r"\W", "_", role, flags=re.ASCII)


def group_by_role(project: "Project") -> dict[str, list["Service"]]:
    """Groups services as the roles of :class:`~assay.cluster.compose.system.Compose` do.

    Services that share a name and have a number, such as etcd1 and etcd2, are one role. A lone one keeps its name.
    """
    from assay.cluster.compose.system import REPLICA

    groups: dict[str, list[Service]] = {}
    for name, service in project.services.items():
        if service.ends:  # a job serves no clients
            continue
        found = REPLICA.fullmatch(name)
        groups.setdefault(found["role"] if found and found["role"] not in project.services else name, []).append(
            service
        )
    return {role if len(services) > 1 else services[0].name: services for role, services in groups.items()}


def choose_subject(project: "Project", asked: str | None) -> Subject:
    """Returns the role to test. Raises :class:`InputError` if it is not clear which one that is."""
    groups = group_by_role(project)
    subjects = [
        Subject(role, services, find_known(services[0].container.image or "")) for role, services in groups.items()
    ]
    names = ", ".join(groups)
    if asked is not None:
        for subject in subjects:
            if asked == subject.role:
                return subject
            if asked in (service.name for service in subject.services):
                alone = [service for service in subject.services if service.name == asked]
                return Subject(asked, alone, subject.known)
        raise InputError(f"{project.file} has no service {asked}; name one of {names} with --service=NAME")
    known = [subject for subject in subjects if subject.known is not None]
    if len(known) == 1:
        return known[0]
    if len(subjects) == 1:
        return subjects[0]
    if known:
        found = ", ".join(f"{subject.role} ({subject.known.name})" for subject in known if subject.known)
        raise InputError(f"{project.file} has several services that could be tested: {found}; "
                         "name the one that your clients use with --service=NAME")  # fmt: skip
    raise InputError(f"{project.file} has no image that is known here; name the service that your clients use with "
                     f"--service=NAME: {names}")  # fmt: skip


def write_test(subject: Subject, file: Path, output: Path, port: int | None) -> str:
    """Returns the text of the test. The client of an unknown image has two functions to fill in."""
    known = subject.known
    if known is None:
        return _write_http_test(subject, file, output, port)
    workload, patience = known.workload, known.patience if known.workload.has_patience else None
    module, _, client = known.client.rpartition(".")
    container = subject.services[0].container
    account, risk = find_account(known, container), find_risk(known, container)
    imports = [("pathlib", "Path"), *(("assay", name) for name in ("Compose", "Generator", "Settings", "experiment"))]
    imports += [(module, client), *((module, name) for module, names in workload.imports.items() for name in names)]
    terms = "may_stall=MAY_STALL" + (f", patience={patience}" if patience else "")
    return "\n".join(
        [
            *_format_head(subject, file, output),
            *_format_imports(imports),
            "",
            *_format_system(subject, file, output, port),
            "",
            *_format_stalling(subject),
            "",
            *(_format_account(client, account) if account else ()),
            *_comment(f"The contract. {workload.promise}"),
            *([] if risk is None else _comment(f"As {file.name} is, {risk}.")),
            *(
                []
                if patience is None
                else _comment("`patience`: seconds for which a client waits for a silent server.")
            ),
            *_format_call("CONTRACT = ", workload.contract.format(terms=terms)),
            "",
            "",
            *_comment("pytest finds this function by its name. Each client is an object of the class."),
            f"@experiment(system=SYSTEM, client={'Client' if account else client}, contract=CONTRACT)",
            f"def test_{to_identifier(subject.role)}(settings: Settings) -> Generator:",
            f'    """{workload.promise}"""',
            *_comment(workload.operations, indent=4),
            f"    return {workload.traffic}",
            "",
        ]
    )


HTTP_TEST: Final = """\
def get(address: str, key: str) -> int | None:
    \"\"\"Returns the value of a key, or None if it has none. `address` is host:port.\"\"\"
    # For example:
    #   answer = requests.get(f"http://{address}/{key}", timeout=1)
    #   if answer.status_code == 404:
    #       return None
    #   answer.raise_for_status()
    #   return int(answer.text)
    raise NotImplementedError


def put(address: str, key: str, value: int) -> None:
    \"\"\"Sets the value of a key, and returns after the service has acknowledged it.\"\"\"
    # For example:
    #   url = f"http://{address}/{key}"
    #   requests.put(url, data=str(value), timeout=1).raise_for_status()
    raise NotImplementedError


class Client(Registers):
    \"\"\"A client calls the service at its address, each time on a new connection.\"\"\"

    # After such an exception the outcome of a put is unknown, as after a timeout.
    errors = (requests.RequestException,)

    def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.address = endpoint.address

    def read(self, key: str) -> int | None:
        return get(self.address, key)

    def write(self, key: str, value: int) -> None:
        put(self.address, key, value)

    def close(self) -> None:
        pass


# The contract. A get returns the value of the latest put.
# `patience`: seconds for which a client waits for a silent server.
CONTRACT = linearizable("register", may_stall=MAY_STALL, patience=1.0)


# pytest finds this function by its name. Each client is an object of the class.
@experiment(system=SYSTEM, client=Client, contract=CONTRACT)
def test_@name@(settings: Settings) -> Generator:
    \"\"\"A get returns the value of the latest put.\"\"\"
    pytest.fail("fill in get() and put() in @file@, then delete this line")
    # Clients get and put the values of these keys.
    return few_values(["r0", "r1", "r2", "r3", "r4"], weights=[READ, WRITE])
"""
"""The end of the test of an unknown image."""


def _write_http_test(subject: Subject, file: Path, output: Path, port: int | None) -> str:
    registers = "assay.workloads.generic.registers"
    imports = [("pathlib", "Path")]
    imports += [("assay", name) for name in ("Compose", "Endpoint", "Generator", "Settings", "experiment")]
    imports += [
        ("assay", "linearizable"),
        *((registers, name) for name in ("READ", "WRITE", "Registers", "few_values")),
    ]
    *standard, blank, first, second = _format_imports(imports)
    end = HTTP_TEST.replace("@name@", to_identifier(subject.role)).replace("@file@", output.name)
    head = [
        *_format_head(subject, file, output),
        *(*standard, blank, "import pytest", "import requests", first, second, ""),
        *_format_system(subject, file, output, port),
        "",
        *_format_stalling(subject),
    ]
    return "\n".join([*head, "", "", end])


def _format_head(subject: Subject, file: Path, output: Path) -> list[str]:
    return [
        f'"""Tests the role {subject.role} of {file.name} under faults.',
        "",
        describe_command(subject, output),
        "",
        "`assay init` wrote this file. It is yours: change it as you like.",
        '"""',
        "",
    ]


def _comment(text: str, indent: int = 0) -> list[str]:
    start = f"{' ' * indent}# "
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False)


def _format_imports(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Returns import statements of names of modules, in the order that linters expect."""
    names: dict[str, set[str]] = {}
    for module, name in pairs:
        names.setdefault(module, set()).add(name)
    lines: list[str] = []
    for standard in (True, False):
        for module in sorted(module for module in names if (module in sys.stdlib_module_names) is standard):
            # Constants come first, then classes, then functions.
            ordered = sorted(names[module], key=lambda name: (not name.isupper(), not name[0].isupper(), name))
            lines += [f"from {module} import {', '.join(ordered)}"]
        lines += [""]
    return lines[:-1]


def _format_list(items: Iterable[str]) -> str:
    return f"[{', '.join(map(_quote, items))}]"


def _quote(text: str) -> str:
    """Returns the text as Python, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _format_system(subject: Subject, file: Path, output: Path, port: int | None) -> list[str]:
    role, known = _quote(subject.role), subject.known
    place = os.path.relpath(file.absolute(), output.absolute().parent)
    lines = _comment("The system: a run starts containers of its own from this file, with empty volumes.")
    lines += ["SYSTEM = Compose(", f"    Path(__file__).parent / {_quote(place)},"]
    names = [service.name for service in subject.services]
    who = f"the service {names[0]}" if len(names) == 1 else f"the services {', '.join(names[:-1])} and {names[-1]}"
    lines += _comment(f"Clients use {who}, on this port. Faults and endpoints name the role {subject.role}.", 4)
    lines += [f"    roles={{{role}: {port or (known.port if known else HTTP_PORT)}}},"]
    if known is not None and (found := find_data_folder(known, subject.services[0].container)) is not None:
        folder, exact = found
        lines += _comment("Faults such as power-loss, wipe and rollback strike this folder of each node.", 4)
        lines += [f"    data={{{role}: {_quote(folder)}}},"]
        if exact and known.files:
            lines += _comment("truncate-tail, garbage-tail and corrupt damage these append-only files in it.", 4)
            lines += [f"    files={{{role}: {_format_list(known.files)}}},"]
    return [*lines, ")"]


def _format_stalling(subject: Subject) -> list[str]:
    """Returns the faults under which the role need not answer."""
    where, faults = ("all nodes", STALLING_ALL) if subject.node_count > 1 else ("the only node", STALLING)
    comment = _comment(f"No request need succeed while one of these faults strikes {where}.")
    return [*comment, "MAY_STALL = [", *(f"    {_quote(fault)}," for fault in faults), "]"]


def _format_account(client: str, account: Mapping[str, str]) -> list[str]:
    """Returns the class of the client with the account of the Compose file."""
    return [
        "",
        f"class Client({client}):",
        '    """The client, with the account that the Compose file creates."""',
        "",
        *(f"    {name} = {_quote(value)}" for name, value in account.items()),
        "",
        "",
    ]


def _format_call(start: str, expression: str) -> list[str]:
    """Returns a statement with a call, whose arguments have a line of their own if it is long."""
    if len(start) + len(expression) <= WIDTH:
        return [start + expression]
    head = re.match(r"[\w.]*\(", expression)
    assert head is not None
    return [start + head[0], f"    {expression[head.end() : -1]}", expression[-1]]


def describe_command(subject: Subject, output: Path) -> str:
    return f"pytest {output} --cluster=docker --nemesis=kill --nemesis-target=one:{subject.role}"


def describe_next_steps(subject: Subject, output: Path) -> list[str]:
    """Returns the lines that the verb prints."""
    lines = [f"wrote {output}"]
    if (known := subject.known) is not None:
        risk = find_risk(known, subject.services[0].container)
        lines += [f"note: {subject.role} runs {known.name}: {risk}"] if risk else []
        if known.driver is not None and util.find_spec(known.driver) is None:
            lines += [f"the client needs a driver: pip install 'assay[{known.extra}]'"]
    else:
        lines += [f"{subject.role} has no image that is known here: fill in get() and put() in {output} first"]
    return [*lines, "next:", f"  {describe_command(subject, output)}"]
