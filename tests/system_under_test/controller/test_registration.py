"""Who has a broker's id: a former life that goes, however late one hears of it, or another that stays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.hosts import collect_hosts

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller import registration
from assay.system_under_test.controller.registration import BrokerIdTaken, register_broker
from assay.system_under_test.deployment import format_zookeepers
from assay.system_under_test.zookeeper import paths, znodes

CONFIG = BrokerConfig(broker_id=1, host="10.0.0.1", port=9092, zookeeper="10.0.0.9:2181", data_dir="data")
OTHER = znodes.encode(
    znodes.BrokerRegistration(host="10.0.0.2", port=9092, endpoints=[], timestamp="0", clean_registrations=[])
)
FORMER, OWN = 7, 8


class Keeper:
    """The session ``FORMER`` is registered. ``goes``: its end comes while it is waited for, and is not heard of."""

    session_id = OWN
    session_timeout = 0.02

    def __init__(self, *, goes: bool, returns: bool = False) -> None:
        self.goes = goes
        self.returns = returns
        self.holder: tuple[int, int, bytes] | None = (FORMER, 100, OTHER)

    async def create(self, path: str, value: bytes, **_: Any) -> str:
        assert path == paths.broker(1)
        if self.holder is not None:
            raise NodeExistsError
        self.holder = OWN, 102, value
        return path

    async def get(self, path: str, watch: Any = None) -> tuple[bytes, Any]:
        if self.holder is None:
            raise NoNodeError
        owner, czxid, data = self.holder
        if owner == FORMER and self.goes:
            self.holder = (FORMER, 101, OTHER) if self.returns else None
            self.goes = False
        return data, SimpleNamespace(ephemeralOwner=owner, czxid=czxid)

    async def exists(self, path: str) -> Any:
        return None if self.holder is None else SimpleNamespace(ephemeralOwner=self.holder[0], czxid=self.holder[1])


def registered(keeper: Keeper) -> int:
    return asyncio.run(register_broker(cast(Any, keeper), CONFIG, clean_registrations=(), timestamp="0"))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "GRACE", 0.01)


def test_a_former_life_that_went_unheard_of_has_not_taken_the_id() -> None:
    assert registered(Keeper(goes=True)) == 102


@pytest.mark.parametrize("goes", [False, True])
def test_a_registration_that_stays_is_another_s_also_one_that_was_made_again(goes: bool) -> None:
    with pytest.raises(BrokerIdTaken, match=r"broker id 1 is taken by 10\.0\.0\.2:9092 "):
        registered(Keeper(goes=goes, returns=True))


def test_an_ipv6_address_is_in_brackets() -> None:
    keeper = Keeper(goes=True)
    six = msgspec.structs.replace(CONFIG, host="fd00::11")
    asyncio.run(register_broker(cast(Any, keeper), six, clean_registrations=(), timestamp="0"))
    assert keeper.holder is not None
    found = znodes.decode(znodes.BrokerRegistration, paths.broker(1), keeper.holder[2])
    assert (found.host, found.endpoints) == ("fd00::11", ["PLAINTEXT://[fd00::11]:9092"])
    cluster: Any = SimpleNamespace(nodes=[SimpleNamespace(address=f"fd00::{n}", role="zookeeper") for n in (1, 2)])
    assert collect_hosts(format_zookeepers(cluster))[0] == [("fd00::1", 2181), ("fd00::2", 2181)]
