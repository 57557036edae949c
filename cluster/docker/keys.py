"""SSH keys of a run and its nodes, used by this run only and never stored on the harness's disk."""

import io

import paramiko

from assay.cluster.docker import code_archive


def generate_keys() -> tuple[paramiko.PKey, paramiko.PKey]:
    """Returns new keys of the harness and of the nodes."""
    return paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


def archive_keys(key: paramiko.PKey, host_key: paramiko.PKey) -> bytes:
    """Returns the files of a node that accepts the first key and shows the second."""
    private = io.StringIO()
    host_key.write_private_key(private)
    return code_archive.archive_files(
        {
            "/etc/ssh/assay_authorized_keys": (0o600, f"{key.get_name()} {key.get_base64()}\n".encode()),
            "/etc/ssh/assay_host_key": (0o600, private.getvalue().encode()),
        }
    )
