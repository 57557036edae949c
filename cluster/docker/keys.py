"""The keys by which a run reaches its nodes over SSH: of this run alone, and never on the harness's disk."""

import io

import paramiko

from assay.cluster.docker import code_archive


def fresh() -> tuple[paramiko.PKey, paramiko.PKey]:
    """The harness's and the nodes'."""
    return paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


def archive(key: paramiko.PKey, host_key: paramiko.PKey) -> bytes:
    """What a node must have so that the one lets in who has the other."""
    private = io.StringIO()
    host_key.write_private_key(private)
    return code_archive.of_files(
        {
            "/etc/ssh/assay_authorized_keys": (0o600, f"{key.get_name()} {key.get_base64()}\n".encode()),
            "/etc/ssh/assay_host_key": (0o600, private.getvalue().encode()),
        }
    )
