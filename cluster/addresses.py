"""Text form of a server's address and port."""


def join_host_port(address: str, port: int) -> str:
    """Returns ``10.0.0.11:9092`` or ``[fd00::11]:9092``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
