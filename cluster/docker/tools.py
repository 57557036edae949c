"""The text of Dockerfiles that give an image of the user's own what a node needs: sshd, iptables, an init, Python.

By the image's package manager where it has one that is known here. An image that has none, as one made of busybox, gets
copies of the node image's programs, with the libraries that they need: they run with whatever C library, or none, the
image has. Either way it gets what it lacks and no more. Text in, text out; ``own`` builds with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from assay.cluster.docker.image_contents import LOOK, MANAGERS, PATH, Contents

PLACE = "/opt/assay-tools"
NODE_IMAGE = "assay.node-image"
"""The label that says with which node image an image is used."""
OWN, OWN_ID = "assay.own", "assay.own-id"
"""The labels that say on which image of the user's it was built, by name and by id."""
RECIPE = "assay.recipe"
"""The label with the :func:`recipe` by which it was built."""

_CORE = dict.fromkeys(("cat", "cksum", "cp", "cut", "dd", "env", "id", "od", "rm", "stat", "sync", "tail"), "coreutils")
_UTIL = dict.fromkeys(("setsid", "setpriv", "fallocate", "mount", "umount"), "util-linux")
_SAME = {
    **_CORE,
    **_UTIL,
    **{name: name for name in ("iptables", "python3", "grep", "sed")},
    "iptables-restore": "iptables",
    "find": "findutils",
    "sshd": "openssh-server",
}
_RPM = {**_SAME, "ip": "iproute", "pkill": "procps-ng"}
PACKAGES: Mapping[str, Mapping[str, str]] = {
    "apt-get": {**_SAME, "ip": "iproute2", "pkill": "procps", "mount": "mount", "umount": "mount"},
    "dnf": _RPM,
    "microdnf": _RPM,
    "yum": _RPM,
    "apk": {**_SAME, "ip": "iproute2", "pkill": "procps", "setpriv": "setpriv"},
}
"""Of each package manager: which package has which of the tools."""

# No service is to start while it is installed: a node's process is the system's to start.
APT = """\
RUN printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d \\
 && apt-get -q update \\
 && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends {packages} \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt
"""
INSTALL: Mapping[str, str] = {
    "apt-get": APT,
    "dnf": "RUN dnf -y --setopt=install_weak_deps=False install {packages} && dnf clean all\n",
    "microdnf": "RUN microdnf -y --setopt=install_weak_deps=0 install {packages} && microdnf clean all\n",
    "yum": "RUN yum -y install {packages} && yum clean all\n",
    "apk": "RUN apk add --no-cache {packages}\n",
}

# sshd takes no root without a shell, and none whose password is locked; its own user is in packages of it. The words
# that it is given are tools that were copied: they come before an applet of the same name that does less.
SETTLE = f"""\
#!/bin/sh
set -e
mkdir -p /run/sshd /run/assay /var/log/assay /etc/ssh /root /tmp /usr/local/bin
chmod 1777 /tmp
has() {{ [ -n "$(sed -n "/^$2:/p" $1 2>/dev/null)" ]; }}
has /etc/passwd root || echo 'root:x:0:0:root:/root:/bin/sh' >> /etc/passwd
has /etc/group root || echo 'root:x:0:' >> /etc/group
has /etc/passwd sshd || echo 'sshd:x:74:74::/run/sshd:/bin/false' >> /etc/passwd
has /etc/group sshd || echo 'sshd:x:74:' >> /etc/group
shell=$(sed -n '/^root:/s/.*://p' /etc/passwd)
case "$shell" in *nologin|*false) shell=;; esac
[ -x "$shell" ] || sed -i 's#^\\(root:.*:\\)[^:]*$#\\1/bin/sh#' /etc/passwd
[ ! -f /etc/shadow ] || sed -i 's/^root:[!][^:]*:/root:*:/' /etc/shadow
for tool in "$@"; do ln -sf {PLACE}/bin/$tool /usr/local/bin/$tool; done
"""
NODE = f"""\
#!/bin/sh
mkdir -p /run/sshd
PATH={PATH}
exec "$(command -v sshd)" -D -e -f /etc/ssh/assay_sshd_config
"""

COPIED = ("sshd", "iptables", "iptables-restore", "python3", "pkill", "setsid", "setpriv", "fallocate", "cksum", "ip")
"""The tools that an image without a package manager may lack: the shell and what is as old are to be there."""

# A program is started by the dynamic linker that lies beside it, which finds the libraries there and hands none of them
# on to what the program starts. `--argv0`: by that name iptables knows what it is, and Python and sshd where.
BUNDLE = f"""\
ARG NODE
FROM $NODE
LABEL assay=tools {NODE_IMAGE}=@REFERENCE@
RUN set -e; place={PLACE}; mkdir -p $place/bin $place/real $place/lib $place/xtables \\
 && cp -L /lib64/ld-linux-x86-64.so.2 $place/ld.so \\
 && cp -r /usr/lib/python3.11 $place/lib/ && rm -rf $place/lib/python3.11/test $place/lib/python3.11/ensurepip \\
 && cp /usr/lib/x86_64-linux-gnu/xtables/*.so $place/xtables/ \\
 && for tool in {" ".join(COPIED)}; do \\
      cp -L "$(readlink -f "$(command -v $tool)")" $place/real/$tool; \\
      case $tool in iptables*) set="XTABLES_LIBDIR=$place/xtables ";; *) set=;; esac; \\
      printf '#!/bin/sh\\n%sexec %s/ld.so --library-path %s/lib --argv0 %s/bin/%s %s/real/%s "$@"\\n' \\
        "$set" $place $place $place $tool $place $tool > $place/bin/$tool; \\
    done \\
 && chmod +x $place/bin/* \\
 && for one in $place/real/* $place/xtables/*.so $place/lib/python3.11/lib-dynload/*.so; do ldd $one || true; done \\
    | sed -n 's/.*=> \\(\\/[^ ]*\\) .*/\\1/p' | sort -u | while read -r library; do cp -L $library $place/lib/; done
"""


def recipe() -> str:
    """A hash of all that decides what is added to an image that lacks the same."""
    parts = (LOOK, SETTLE, NODE, BUNDLE, str(PACKAGES), str(INSTALL))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def dockerfile(labels: str, named: str, found: Contents, packages: Sequence[str], bundle: str | None) -> str:
    """For the build arguments NODE and OWN. ``packages``: what the system asks for. ``bundle``: the image with copies.

    ``named``: the user's image, for messages. Raises ``ValueError`` for what cannot be added.
    """
    lines = ["ARG NODE", "ARG OWN", "FROM $NODE AS node", "FROM $OWN", f"LABEL {labels}"]
    lines += ['SHELL ["/bin/sh", "-c"]', "USER 0", ""]
    return "\n".join(lines) + _added(named, found, packages, bundle) + _settled(() if bundle is None else found.missing)


def _added(named: str, found: Contents, packages: Sequence[str], bundle: str | None) -> str:
    if found.manager is not None:
        has = PACKAGES[found.manager]
        names = list(dict.fromkeys([*(has[tool] for tool in found.missing), *packages]))
        return INSTALL[found.manager].format(packages=" ".join(names)) if names else ""
    if packages:
        raise ValueError(
            f"{named} has no package manager that is known here ({', '.join(MANAGERS)}), which could install "
            f"{', '.join(packages)}: bring them in its Dockerfile, and leave `packages` out"
        )
    if bare := [tool for tool in found.missing if tool not in COPIED]:
        raise ValueError(
            f"{named} lacks {', '.join(bare)}, and has no package manager that is known here ({', '.join(MANAGERS)}): "
            "add them in its Dockerfile, for example with all applets of busybox"
        )
    return f"COPY --from={bundle} {PLACE} {PLACE}\n" if found.missing else ""


def _settled(copied: Sequence[str]) -> str:
    return f"""\
COPY --from=node /usr/bin/tini-static {PLACE}/tini
COPY sshd_config /etc/ssh/assay_sshd_config
COPY settle node {PLACE}/
RUN {" ".join(("/bin/sh", f"{PLACE}/settle", *copied))}
WORKDIR /
HEALTHCHECK NONE
ENTRYPOINT ["{PLACE}/tini", "--", "/bin/sh", "{PLACE}/node"]
CMD []
"""
