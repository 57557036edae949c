"""Dockerfiles that add the programs that a node needs to a user's image: sshd, iptables, an init, Python.

They use the image's package manager if it is a known one. An image without one, such as an image based on busybox, gets
copies of the node image's programs with their libraries. These run with any C library, or none. Only missing programs
are added. This module only writes the text; ``user_images`` builds the image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from assay.cluster.docker.image_contents import EXAMINE_SCRIPT, MANAGERS, PATH, ImageContents

TOOLS_FOLDER = "/opt/assay-tools"
NODE_IMAGE_LABEL = "assay.node-image"
"""Label that names the node image for which, or on which, the image was built."""
USER_IMAGE_LABEL, USER_IMAGE_ID_LABEL = "assay.own", "assay.own-id"
"""Labels with the name and the id of the user's image."""
MACHINE_LABEL = "assay.machine"
"""Label of containers, networks and images that only one machine knows. The value for an image is
:func:`assay.cluster.owner.find_machine_label`, for others ``find_host_label``. Objects of earlier versions lack it."""
RECIPE_LABEL = "assay.recipe"
"""Label with the :func:`recipe_hash` by which the image was built."""

# Maps from each program to its package. `_SAME` has the packages that are called the same in all distributions.
_CORE = dict.fromkeys(("cat", "cksum", "cp", "cut", "dd", "env", "id", "od", "rm", "stat", "sync", "tail"), "coreutils")
_UTIL = dict.fromkeys(("setsid", "setpriv", "fallocate"), "util-linux")
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
    "apt-get": {**_SAME, "ip": "iproute2", "pkill": "procps"},
    "dnf": _RPM,
    "microdnf": _RPM,
    "yum": _RPM,
    "apk": {**_SAME, "ip": "iproute2", "pkill": "procps", "setpriv": "setpriv"},
}
"""Maps each package manager to the packages of the tools."""

# Installed services must not start by themselves, because the harness starts a node's process.
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

# Runs at the end of the build, and creates the users, folders and links that a node needs. sshd rejects root without a
# shell or with a locked password. It needs the user `sshd`, which only its packages create. The script's arguments are
# the copied tools. In PATH their links come before applets of the same name.
SETTLE_SCRIPT = f"""\
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
for tool in "$@"; do ln -sf {TOOLS_FOLDER}/bin/$tool /usr/local/bin/$tool; done
"""
# Starts sshd, as the only child of the init.
NODE_SCRIPT = f"""\
#!/bin/sh
mkdir -p /run/sshd
PATH={PATH}
exec "$(command -v sshd)" -D -e -f /etc/ssh/assay_sshd_config
"""

COPIED = ("sshd", "iptables", "iptables-restore", "python3", "pkill", "setsid", "setpriv", "fallocate", "cksum", "ip")
"""Tools that are copied to an image without a package manager. The shell and the other tools must be there already."""

# Dockerfile of the *bundle*, the image with copies of the node image's programs. Each copied tool is a script. It calls
# the copied dynamic linker, which starts the program with the copied libraries. Child processes do not use these
# libraries. `ldd` names the dynamic linker, whose path depends on the processors. `--argv0` is needed because iptables
# reads its name, Python and sshd their path.
BUNDLE_DOCKERFILE = f"""\
ARG NODE
FROM $NODE
LABEL assay=tools {NODE_IMAGE_LABEL}=@REFERENCE@
RUN set -e; place={TOOLS_FOLDER}; mkdir -p $place/bin $place/real $place/lib $place/xtables \\
 && cp -L "$(ldd "$(command -v sshd)" | sed -n 's/^[[:space:]]*\\(\\/[^ ]*ld-linux[^ ]*\\) .*/\\1/p')" $place/ld.so \\
 && cp -r /usr/lib/python3.11 $place/lib/ && rm -rf $place/lib/python3.11/test $place/lib/python3.11/ensurepip \\
 && cp /usr/lib/*-linux-gnu/xtables/*.so $place/xtables/ \\
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


def recipe_hash() -> str:
    """Returns a hash of all texts that determine the additions to an image."""
    parts = (EXAMINE_SCRIPT, SETTLE_SCRIPT, NODE_SCRIPT, BUNDLE_DOCKERFILE, str(PACKAGES), str(INSTALL))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def render_dockerfile(
    labels: str, display_name: str, found: ImageContents, packages: Sequence[str], bundle: str | None
) -> str:
    """Returns a Dockerfile with the build arguments NODE and OWN. Raises ``ValueError`` if a program cannot be added.

    - ``packages``: packages that the system requires
    - ``bundle``: the image with copies of the node image's programs
    - ``display_name``: the user's image, for messages
    """
    lines = ["ARG NODE", "ARG OWN", "FROM $NODE AS node", "FROM $OWN", f"LABEL {labels}"]
    lines += ['SHELL ["/bin/sh", "-c"]', "USER 0", ""]
    return (
        "\n".join(lines)
        + _render_installation(display_name, found, packages, bundle)
        + _render_settings(() if bundle is None else found.missing)
    )


def _render_installation(display_name: str, found: ImageContents, packages: Sequence[str], bundle: str | None) -> str:
    if found.manager is not None:
        package_of = PACKAGES[found.manager]
        names = list(dict.fromkeys([*(package_of[tool] for tool in found.missing), *packages]))
        return INSTALL[found.manager].format(packages=" ".join(names)) if names else ""
    if packages:
        raise ValueError(
            f"{display_name} has no package manager that is known here ({', '.join(MANAGERS)}), which could install "
            f"{', '.join(packages)}: bring them in its Dockerfile, and leave `packages` out"
        )
    if unavailable := [tool for tool in found.missing if tool not in COPIED]:
        raise ValueError(
            f"{display_name} lacks {', '.join(unavailable)}, and has no package manager that is known here "
            f"({', '.join(MANAGERS)}): add them in its Dockerfile, for example with all applets of busybox"
        )
    return f"COPY --from={bundle} {TOOLS_FOLDER} {TOOLS_FOLDER}\n" if found.missing else ""


def _render_settings(copied: Sequence[str]) -> str:
    return f"""\
COPY --from=node /usr/bin/tini-static {TOOLS_FOLDER}/tini
COPY sshd_config /etc/ssh/assay_sshd_config
COPY settle node {TOOLS_FOLDER}/
RUN {" ".join(("/bin/sh", f"{TOOLS_FOLDER}/settle", *copied))}
WORKDIR /
HEALTHCHECK NONE
ENTRYPOINT ["{TOOLS_FOLDER}/tini", "--", "/bin/sh", "{TOOLS_FOLDER}/node"]
CMD []
"""
