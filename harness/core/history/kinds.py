"""The kinds of effects by family of objects. ``docs/history.md`` describes each.

A history may hold other kinds, for checks that a user adds.
"""

from collections.abc import Mapping
from typing import Final

UNRECORDED: Final = "unrecorded"
"""The effects of an operation are unknown because the client's ``effects`` raised."""

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "log": (
        "append", "observe-begin", "observe", "observe-end", "seek", "reset", "end", "start", "look-up", "drained",
        "reported", "unreported", "out-of-range", "waited",
        "tried",
    ),
    "admin": (
        "topic-create", "topic-delete", "partitions-add", "setting", "move", "topic-seen", "setting-seen",
        "replicas-seen",
    ),
    "register": ("register-write", "register-read", "register-cas"),
    "counter": ("counter-add", "counter-read"),
    "max-register": ("max-write", "max-read"),
    "set": ("set-add", "set-remove", "set-read"),
    "bank": ("bank-open", "bank-withdraw", "bank-deposit", "bank-read"),
    "unique-ids": ("id-generate",),
    "monotonic": ("monotonic-add", "monotonic-read"),
    "queue": ("queue-enqueue", "queue-dequeue", "queue-drained"),
    "transactions": ("txn-append", "txn-write", "txn-read"),
    "groups": (
        "acquire", "release", "lost", "claim", "share", "idle",
        "commit", "fetched", "advance", "resume", "keep", "kept", "part",
    ),
    "any": (UNRECORDED,),
    "leases": ("acquire", "renew", "release", "lost", "guarded"),
}  # fmt: skip
