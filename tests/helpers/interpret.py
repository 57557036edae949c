"""Runs one generator in an interpreter of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from assay.harness.core.generator.base import Source
from assay.harness.core.interpreter import Interpreter
from assay.harness.core.interpreter_status import InterpreterStatus


async def interpret(generator: Source, *, stop: asyncio.Event | None = None, **given: Any) -> InterpreterStatus:
    """From beginning to end, clients opened before and closed after."""
    async with Interpreter(**given) as interpreter:
        return await interpreter.run(generator, stop=stop)
