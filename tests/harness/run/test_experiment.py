"""Tests what ``@experiment`` rejects where it is written, before anything is started."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract, linearizable
from assay.cluster.system import System
from assay.harness.core.blocking import BlockingClient
from assay.harness.core.client import Client
from assay.harness.core.generator import Generator, sequence
from assay.harness.run.experiment import IncompleteError, experiment, find_experiment


def body(settings: Any) -> Generator:
    return sequence()


def rejected(system: Any, client: Any) -> str:
    with pytest.raises(IncompleteError) as caught:
        experiment(system=system, client=client, contract=Contract())(body)
    return str(caught.value)


def without(kind: type, *names: str) -> type:
    """A class that has what ``kind`` has, except these."""
    kept = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("__") and name not in names}
    return type("Mine", (), kept)


def test_a_whole_system_and_client_make_an_experiment(toy: ModuleType) -> None:
    made = experiment(system=toy.ToySystem(), client=toy.ToyClient, contract=Contract())(body)
    assert find_experiment(made) is not None


def test_a_client_that_is_judged_by_a_model_need_not_say_what_effects_its_operations_have(toy: ModuleType) -> None:
    silent = without(toy.ToyClient, "effects")
    assert "lacks effects" in rejected(toy.ToySystem(), silent)
    for promised in ({"contract": linearizable("kv")}, {"contract": Contract(), "model": "kv"}):
        made = find_experiment(experiment(system=toy.ToySystem(), client=silent, **promised)(body))
        assert made is not None
        assert made.contract.model == "kv"


def test_a_client_blocks_or_has_coroutines(toy: ModuleType) -> None:
    def plain(self: Any, *given: Any) -> None: ...

    methods = dict.fromkeys(("open", "invoke", "close", "effects"), plain)
    assert "not coroutines: write `async def`, or set `blocking" in rejected(toy.ToySystem(), type("Mine", (), methods))
    blocking = type("Mine", (), {**methods, "blocking": True})
    experiment(system=toy.ToySystem(), client=blocking, contract=Contract())(body)
    mixed = type("Mine", (), {**methods, "blocking": True, "open": toy.ToyClient.open})
    assert "has `blocking = True`, but its methods are" in rejected(toy.ToySystem(), mixed)


@pytest.mark.parametrize("name", ["open", "invoke", "close", "effects"])
def test_a_client_that_lacks_something_is_rejected(toy: ModuleType, name: str) -> None:
    expected = f"the client Mine lacks {name} (harness/core/client.py, class Client)"
    assert rejected(toy.ToySystem(), without(toy.ToyClient, name)) == expected


@pytest.mark.parametrize("protocol", [Client, BlockingClient])
def test_what_a_client_only_inherits_from_the_protocol_it_lacks(toy: ModuleType, protocol: type) -> None:
    class Mine(protocol):  # type: ignore[misc]
        async def open(self, endpoint: Any, runtime: Any) -> None: ...

    assert "Mine lacks invoke, close, effects (" in rejected(toy.ToySystem(), Mine)


def test_a_system_that_lacks_something_is_rejected(toy: ModuleType) -> None:
    class Mine(System):
        name = "mine"

        def port(self, role: str) -> int:
            return 1

    assert "the system Mine lacks roles, argv, files, ready (cluster/system.py" in rejected(Mine(), toy.ToyClient)


@pytest.mark.parametrize("roles", ["server", ()])
def test_roles_are_a_tuple_of_names(toy: ModuleType, roles: Any) -> None:
    assert "it must be a tuple" in rejected(toy.ToySystem(roles=roles), toy.ToyClient)
