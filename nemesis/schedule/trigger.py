"""Triggers of steps: a number of acknowledged operations, or an event of a node's event log.

A step without a trigger acts at its time. A step with a trigger is *armed* at its time. It acts when the trigger fires,
after an optional ``delay`` in seconds. Events before the step was armed do not count. If the trigger has not fired
after ``within`` seconds, the step is reported as failed, never skipped silently.

The conductor reads lines of event logs over SSH some tens of milliseconds after they were written. The record has the
delay from the line's arrival to the action. With ``hold``, a step acts exactly after its event: the process that wrote
the event is stopped until the step has acted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
EVERY_INTERVAL = "every"
DEFAULT_TIMEOUT = 30.0
"""Seconds."""


class TriggerError(ValueError):
    """A trigger cannot be read. The message lists the possible triggers."""


class AfterOperations(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="after"):
    """Fires once ``operations`` are acknowledged after the step was armed. ``delay`` and ``within`` in seconds."""

    operations: Positive
    delay: Seconds = 0.0
    within: Seconds = DEFAULT_TIMEOUT

    def __str__(self) -> str:
        return f"after {self.operations} acknowledged operations"


class OnEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="event"):
    """Fires on the ``nth`` line of this event, of any node, after the step was armed.

    - ``key`` and ``fields``: values that the line must have. A field may be in the line or in its ``detail``.
    - ``hold``: the process stops itself at the event, so that it writes nothing more until the step has acted
      (:mod:`assay.nemesis.engine.stop_at_event`).
    - ``optional``: the step has not failed if the trigger never fires. Then the table ``faults`` has no row of the
      step.
    """

    event: Annotated[str, msgspec.Meta(min_length=1)]
    key: str | None = None
    fields: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    nth: Positive = 1
    delay: Seconds = 0.0
    within: Seconds = DEFAULT_TIMEOUT
    hold: bool = False
    optional: bool = False

    def __post_init__(self) -> None:
        if self.hold and (self.fields or self.nth > 1 or self.delay):
            raise TriggerError(
                "a trigger with hold takes only the name and the key of an event: leave out fields, nth and delay"
            )
        if self.hold and any(len(word.split()) != 1 for word in (self.event, self.key or "any")):
            raise TriggerError(f"hold: event {self.event!r} and key {self.key!r} must be one word each")

    def __str__(self) -> str:
        wanted = {"key": self.key, **self.fields}
        condition = "".join(f" {name}={value}" for name, value in wanted.items() if value is not None)
        return f"{'exactly on' if self.hold else 'on'} {self.event}{condition}" + (
            f" number {self.nth}" if self.nth > 1 else ""
        )

    def matches(self, line: Mapping[str, Any]) -> bool:
        if line.get("event") != self.event or (self.key is not None and line.get("key") != self.key):
            return False
        detail = line.get("detail")
        known = {**detail, **line} if isinstance(detail, dict) else line
        return all(name in known and known[name] == value for name, value in self.fields.items())


Trigger = AfterOperations | OnEvent


@dataclass
class ArmedTrigger:
    """A waiting trigger.

    - ``deadline``: in seconds of the run
    - ``before``: number of operations that were acknowledged before the step was armed
    - ``seen``: number of acknowledged operations, or of events, since then
    """

    trigger: Trigger
    deadline: float
    before: int
    seen: int = 0

    def fires_at(self, total: int) -> bool:
        """Returns whether the trigger fires, now that ``total`` operations of the run are acknowledged."""
        if isinstance(self.trigger, OnEvent):
            return False
        self.seen = total - self.before
        return self.seen >= self.trigger.operations

    def fires_on(self, line: Mapping[str, Any]) -> bool:
        """Returns whether the trigger fires on this line."""
        if not isinstance(self.trigger, OnEvent) or not self.trigger.matches(line):
            return False
        self.seen += 1
        return self.seen >= self.trigger.nth

    def describe_shortfall(self) -> str:
        """Describes what was seen before the deadline, for a trigger that did not fire."""
        what = f"events {self.trigger.event}" if isinstance(self.trigger, OnEvent) else "acknowledged operations"
        return f"saw {self.seen} {what} in the {self.trigger.within:g} s since it was armed"


@dataclass(frozen=True)
class FiredTrigger:
    """A trigger that fired at ``at`` and whose step acts at ``due``, in seconds of the run.

    ``origin`` and ``line``: the node and the line of the event.
    """

    at: float
    due: float
    origin: str | None = None
    line: Mapping[str, Any] | None = None


def parse_trigger(text: str) -> Trigger | None:
    """Parses a trigger. Raises :class:`TriggerError`.

    - ``every``: None, which means that each step acts at its time
    - ``after:500``: 500 operations
    - ``event:NAME``, ``event:NAME:KEY``: an event
    - ``hold:NAME``, ``hold:NAME:KEY``: an event at which the process stops
    """
    word, _, rest = text.strip().partition(":")
    name, _, key = rest.partition(":")
    if text.strip() == EVERY_INTERVAL:
        return None
    if word == "after" and rest.isascii() and rest.isdigit() and int(rest) > 0:
        return AfterOperations(int(rest))
    if word in ("event", "hold") and name:
        return OnEvent(name, key or None, hold=word == "hold")
    raise TriggerError(
        f"unknown trigger {text!r}; it must be every, after:N (N acknowledged operations), event:NAME (such as "
        "event:became-leader), event:NAME:KEY, hold:NAME or hold:NAME:KEY"
    )


def repeat_trigger(trigger: Trigger, number: int, within: float) -> Trigger:
    """Returns the trigger of a run's ``number``-th fault, from 1.

    It fires after ``number`` times the operations, or at ``number`` times the ``nth`` line of the event.

    Raises :class:`TriggerError` for a second fault with ``hold``.
    """
    if isinstance(trigger, AfterOperations):
        return msgspec.structs.replace(trigger, operations=trigger.operations * number, within=within)
    if trigger.hold and number > 1:
        raise TriggerError(
            f"hold:{trigger.event} can trigger only one fault: name one fault, or give each fault its own event "
            "in a schedule"
        )
    return msgspec.structs.replace(trigger, nth=trigger.nth * number, within=within)
