"""The shell that fills a disk of a node's own to the last block, looks at it, and makes room again.

Blocks are reserved, not written (``fallocate``), so that it takes some milliseconds, and the image outside stays small.
"""

import shlex

FILLER, PROBE = ".assay-filler", ".assay-probe"
CHUNKS = (1 << 26, 1 << 22, 1 << 18, 1 << 14, 1 << 12)
"""Bytes: smaller and smaller, down to a block."""
PROBE_BYTES = 4096


def fill(folder: str) -> str:
    """Returns when no block is free."""
    sizes = " ".join(map(str, CHUNKS))
    return f"""file={shlex.quote(f"{folder}/{FILLER}")} at=0
for size in {sizes}; do
  while fallocate -o $at -l $size "$file" 2>/dev/null; do at=$((at + size)); done
done
[ $at -gt 0 ] || {{ echo "no block of {folder} could be reserved" >&2; exit 24; }}
"""


def undo(folder: str) -> tuple[str, ...]:
    """Idempotent."""
    return ("rm", "-f", f"{folder}/{FILLER}", f"{folder}/{PROBE}")


def look(folder: str) -> str:
    """Prints free blocks, their size, and what a write of one block comes to."""
    probe = shlex.quote(f"{folder}/{PROBE}")
    return f"""said=$(LC_ALL=C dd if=/dev/zero of={probe} bs={PROBE_BYTES} count=1 conv=fsync 2>&1)
rm -f {probe}
stat -f -c '%a %S' {shlex.quote(folder)}
echo "$said"
"""


def room(output: str) -> tuple[int, bool]:
    """Free bytes, and whether the write was rejected for want of space, of what :func:`look` printed."""
    first, *said = output.splitlines()
    free, size = first.split()
    return int(free) * int(size), any("No space left on device" in line for line in said)
