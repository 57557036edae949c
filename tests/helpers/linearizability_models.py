"""Models in a module that other processes can import."""

from __future__ import annotations

import json
import os
import signal

from assay.checkers.linearizability import MODELS, Action, Call, Model
from assay.checkers.linearizability.locks import (
    FencedReentrantMutex,
    LeaseMutex,
    OwnerSemaphore,
    ReentrantMutex,
    Semaphore,
)
from assay.checkers.linearizability.models import Register

from helpers.linearizability_oracle import LASTS, PERMITS

TESTED: dict[str, Model] = {
    **MODELS,
    "reentrant-mutex": ReentrantMutex(PERMITS),
    "fenced-reentrant-mutex": FencedReentrantMutex(PERMITS),
    "lease-mutex": LeaseMutex(LASTS / 1e9),
    "semaphore": Semaphore(PERMITS),
    "owner-semaphore": OwnerSemaphore(PERMITS),
}
"""The built-in models with the arguments that the oracle assumes."""
DIE = 7


class Mixer(Model):
    """Every order of its operations leaves another state: nothing can be left out."""

    name = "mixer"

    def encode(self, call: Call) -> Action:
        return Action(0 if call.f == "mix" else 1, call.argument, reads=call.f != "mix")

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == 0:
            return True, (state * 31 + x) % 1000003
        return state == x, state


class Unsaid(Model):
    """Says that it only reads, and changes the state."""

    name = "unsaid"

    def encode(self, call: Call) -> Action:
        return Action(0, call.argument, reads=True)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        return True, state + x


class Deadly(Register):
    """A register with an operation that kills the process that searches it."""

    name = "deadly"
    register = None
    compiled = False

    def encode(self, call: Call) -> Action | None:
        return Action(DIE) if call.f == "die" else super().encode(call)

    @staticmethod
    def step(state: int, f: int, x: int, y: int) -> tuple[bool, int]:
        if f == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        return (state == x, state) if f == 0 else (True, x)


class Stack(Model):
    """Last in, first out; a state is no integer."""

    name = "stack"
    initial = ()
    compiled = False

    def encode(self, call: Call) -> Action:
        return Action(0, json.dumps(call.argument)) if call.f == "push" else Action(1, json.dumps(call.result))

    @staticmethod
    def step(state: tuple[str, ...], f: int, x: str, y: int) -> tuple[bool, tuple[str, ...]]:
        return (True, (*state, x)) if f == 0 else (state[-1:] == (x,), state[:-1])


class Text(Model):
    """A text that grows; each state is a new one, and in a tuple."""

    name = "text"
    initial = ("",)
    compiled = False

    def encode(self, call: Call) -> Action:
        return Action(0, call.argument)

    @staticmethod
    def step(state: tuple[str], f: int, x: str, y: int) -> tuple[bool, tuple[str]]:
        return True, (state[0] + x,)
