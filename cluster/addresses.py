"""How the address and the port of a server are written as one word."""


def at(address: str, port: int) -> str:
    """``10.0.0.11:9092``, ``[fd00::11]:9092``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
