"""Shell commands that fill a node's separate disk to the last block, examine it, and free the space again.

Blocks are preallocated, not written (``fallocate``). This takes some milliseconds, and the disk's image stays small.
"""

import shlex

FILLER, PROBE = ".assay-filler", ".assay-probe"
CHUNKS = (1 << 26, 1 << 22, 1 << 18, 1 << 14, 1 << 12)
"""Bytes, in descending order down to one block."""
PROBE_BYTES = 4096


def fill_command(folder: str) -> str:
    """Returns the command that fills the disk until no block is free."""
    sizes = " ".join(map(str, CHUNKS))
    return f"""file={shlex.quote(f"{folder}/{FILLER}")} at=0
for size in {sizes}; do
  while fallocate -o $at -l $size "$file" 2>/dev/null; do at=$((at + size)); done
done
[ $at -gt 0 ] || {{ echo "no block of {folder} could be reserved" >&2; exit 24; }}
"""


def undo_command(folder: str) -> tuple[str, ...]:
    """Returns the command that removes the filling. Idempotent."""
    return ("rm", "-f", f"{folder}/{FILLER}", f"{folder}/{PROBE}")


def probe_command(folder: str) -> str:
    """Returns the command that tries to write one block. It prints the free blocks, their size, and the result."""
    probe = shlex.quote(f"{folder}/{PROBE}")
    return f"""said=$(LC_ALL=C dd if=/dev/zero of={probe} bs={PROBE_BYTES} count=1 conv=fsync 2>&1)
rm -f {probe}
stat -f -c '%a %S' {shlex.quote(folder)}
echo "$said"
"""


def parse_room(output: str) -> tuple[int, bool]:
    """Parses the output of :func:`probe_command`: free bytes, and whether the write failed with ENOSPC."""
    first, *said = output.splitlines()
    free, size = first.split()
    return int(free) * int(size), any("No space left on device" in line for line in said)
