"""Facts of a file of another tool that enter its judgement: contradictory answers, and whether it shows real time.

An operation with an answer that contradicts its call is judged as one of unknown outcome. So the wrong answer causes no
findings about other operations.

A file may show no order of real time. A judgement that needs this order is then refused, because its verdict would
depend on chance.
"""

import json
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from assay.checkers.isolation.levels import Order, find_level
from assay.checkers.judging.verdict import MOST_FINDINGS, CheckCoverage, Finding, Judgement, Verdict
from assay.checkers.linearizability import Model
from assay.checkers.linearizability.models import is_builtin
from assay.harness.core.printable import count_noun
from assay.harness.foreign import ForeignHistory, MalformedError, separate_processes, to_edn
from assay.harness.foreign.answers import ANOMALY, MEANING, ContradictoryAnswer
from assay.harness.stored.request import CheckRequest
from assay.harness.stored.workload_table import BY_NAME

WITHOUT_PROCESSES: Final = (
    "register",
    "cas-register",
    "kv",
    "mutex",
    "fifo-queue",
    "unordered-queue",
    "set",
    "semaphore",
)
"""Built-in models that do not depend on the process of a call."""

_JSON: Final = json.JSONDecoder()
_OUTCOME: Final = "it counts as an operation of unknown outcome, with the writes of its call"


def add_contradictory_answers(judgement: Judgement, foreign: ForeignHistory) -> Judgement:
    """Adds the number of compared answers, and a finding for each contradictory one, which fails the history."""
    answers = foreign.answers
    examined = CheckCoverage(
        check=ANOMALY, rows=foreign.answered, claims=foreign.answered, exposed=foreign.comparable, seconds=0.0
    )
    if not answers:
        return msgspec.structs.replace(
            judgement,
            forbidden=(ANOMALY, *judgement.forbidden),
            examined=(*judgement.examined, examined),
            meanings={ANOMALY: MEANING, **judgement.meanings},
        )
    shift = min(len(answers), MOST_FINDINGS)  # ``same_cause_as`` is an index into the findings
    shifted = (
        finding
        if finding.same_cause_as is None
        else msgspec.structs.replace(finding, same_cause_as=finding.same_cause_as + shift)
        for finding in judgement.findings
    )
    return msgspec.structs.replace(
        judgement,
        verdict=Verdict.FAIL,
        anomalies={ANOMALY: len(answers), **judgement.anomalies},
        forbidden=(ANOMALY, *judgement.forbidden),
        findings=(*map(_make_finding, answers[:MOST_FINDINGS]), *shifted),
        examined=(examined, *judgement.examined),
        meanings={ANOMALY: MEANING, **judgement.meanings},
    )


def _make_finding(answer: ContradictoryAnswer) -> Finding:
    where = "" if answer.key is None else f" of key {answer.key}"
    return Finding(
        anomaly=ANOMALY,
        key=answer.key,
        claim=f"Process {answer.process} called {answer.f}{where} with {answer.called}, and was answered "
        f"{answer.answered}; {_OUTCOME}.",
        operations=(answer.index,),
        time=answer.ret,
        since=answer.call,
        until=answer.ret,
        first_time=answer.ret,
        first_operation=answer.index,
    )


def write_claims_in_edn(judgement: Judgement) -> Judgement:
    """Returns a judgement whose claims show values as EDN. The checks show keywords and sets as stored, in JSON."""
    return msgspec.structs.replace(judgement, findings=tuple(map(write_claim_in_edn, judgement.findings)))


def write_claim_in_edn(finding: Finding) -> Finding:
    """Returns a finding whose claim shows values as EDN."""
    return msgspec.structs.replace(finding, claim=_to_edn_within(finding.claim))


def _to_edn_within(text: str) -> str:
    """Replaces each JSON object in a text by its EDN. The rest of an object that was cut off stays as it is."""
    parts, at = [], 0
    while (begin := text.find('{"', at)) >= 0:
        try:
            _, end = _JSON.raw_decode(text, begin)
            value = to_edn(text[begin:end])
        except (ValueError, RecursionError):
            end, value = begin + 1, text[begin]
        parts += [text[at:begin], value]
        at = end
    return "".join((*parts, text[at:]))


def choose_processes(model: Model, path: Path, foreign: ForeignHistory) -> pa.Table:
    """Returns the operations with the processes that a judgement by the model needs.

    A model may depend on the process of a call, so it gets the numbers of the file. For the models without processes,
    a process gets a new number after an operation of unknown outcome, as the checks in SQL need it. Raises
    ``MalformedError`` if the model needs processes that the file lacks.
    """
    if is_builtin(model) and model.name in WITHOUT_PROCESSES:
        return separate_processes(foreign.ops)
    if foreign.unnamed:
        raise MalformedError(
            path,
            None,
            f"--model={model.name} may depend on the process of a call, and {count_noun(foreign.unnamed, 'operation')} "
            "have no :process; add it",
        )
    return foreign.ops


def require_real_time(request: CheckRequest, path: Path, foreign: ForeignHistory) -> None:
    """Raises ``MalformedError`` if the file shows no order of real time, and the judgement would use one."""
    place = foreign.order.contradiction
    level = None if request.level is None else find_level(request.level)
    by_level = level is not None and level.order is Order.REAL_TIME
    uses_time = request.workload is None or BY_NAME[request.workload].uses_time
    if place is None or not (uses_time or request.real_time or by_level):
        return
    needs = "real-time" if request.real_time else "level" if by_level else "workload" if request.workload else "model"
    raise MalformedError(
        path,
        place,
        f"{foreign.order.reason}, so the order of real time is unknown, which --{needs} needs: {foreign.order.remedy}",
    )
