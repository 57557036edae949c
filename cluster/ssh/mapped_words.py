"""Shell commands that write and read files of int64 words, which a preloaded library has mapped.

The files are never truncated: a process that has one mapped would die of SIGBUS.
"""

import struct

SIZE = 8
"""Bytes of a word."""


def write_command(file: str, first: int, *words: int) -> str:
    """Returns the shell command that overwrites words from index ``first`` on and leaves the others."""
    octal = "".join(f"\\{byte:03o}" for byte in struct.pack(f"<{len(words)}q", *words))
    return f"printf '{octal}' | dd of={file} bs={SIZE} seek={first} conv=notrunc status=none"


def read_command(file: str) -> str:
    """Returns the shell command that prints all words."""
    return f"od -An -v -t d8 {file}"


def parse_words(output: str) -> list[int]:
    """Parses the output of :func:`read`."""
    return [int(word) for word in output.split()]
