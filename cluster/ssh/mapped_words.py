"""Files of int64 words that a preloaded library has mapped: the shell that writes and reads them.

They are never made shorter: a process that has one mapped would die of SIGBUS.
"""

import struct

SIZE = 8
"""Bytes of a word."""


def write(file: str, first: int, *words: int) -> str:
    """The shell command that changes these words, from the number ``first`` on, and leaves the others."""
    octal = "".join(f"\\{byte:03o}" for byte in struct.pack(f"<{len(words)}q", *words))
    return f"printf '{octal}' | dd of={file} bs={SIZE} seek={first} conv=notrunc status=none"


def read(file: str) -> str:
    """The one that prints them all."""
    return f"od -An -v -t d8 {file}"


def words(output: str) -> list[int]:
    """What :func:`read` printed."""
    return [int(word) for word in output.split()]
