"""A failed login is one error of this package: paramiko's own log of it is not printed."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import socket, threading
import paramiko
from assay.cluster.ssh.connection import Login, SshConnection, UnansweredError

server = socket.create_server(("127.0.0.1", 0))

def hang_up():
    while True:
        connection, _ = server.accept()
        connection.sendall(b"no SSH\\n" * 200)
        connection.close()

threading.Thread(target=hang_up, daemon=True).start()
key = paramiko.ECDSAKey.generate()
login = Login("127.0.0.1", "root", key, key, port=server.getsockname()[1])
try:
    SshConnection("n1", login).run("true")
except UnansweredError as error:
    print(error)
"""


def test_a_server_that_speaks_no_ssh_leaves_nothing_on_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert "no SSH connection" in done.stdout
    assert done.stderr == ""
