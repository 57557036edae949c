"""Deployment of MariaDB Galera 10.11 on three servers in Docker. The nodes install it from Debian.

The first server bootstraps the cluster if it has no data yet. The other servers, and the first one after a restart,
join and fetch missing data from running servers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay import Cluster, Node, NodeCounts, Software
from assay.workloads.systems.mariadb import DATA, TABLES, VARIANTS, MariaDB, connect

SETTINGS, BEGIN = "/etc/assay-galera.cnf", "/etc/assay-begin"
START = f"""
install -d -o mysql -g mysql -m 700 {DATA} /run/mysqld
begin=
if [ ! -d {DATA}/mysql ]; then
    mariadb-install-db --no-defaults --user=mysql --datadir={DATA} > /dev/null
    if [ -s {BEGIN} ]; then begin="--wsrep-new-cluster --init-file={BEGIN}"; fi
fi
exec mariadbd --defaults-file={SETTINGS} --user=mysql $begin"""
TABLE_OF_SETS = "create table if not exists assay.elements (element int primary key);\n"


@dataclass(frozen=True)
class Galera(MariaDB):
    name: str = "galera"
    node_counts: NodeCounts = field(default_factory=dict)
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: VARIANTS | {"wsrep_sync_wait": ("0", "1")})

    def software(self, role: str) -> Software:
        return Software(packages=("mariadb-server", "galera-4", "rsync", "lsof"))

    def data_folder(self, node: Node) -> str:
        return DATA

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", " ".join((START, *self.chosen))]  # with the options of the chosen settings

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        addresses = ",".join(one.address for one in cluster.nodes)
        lines = ["[mariadb]", f"datadir = {DATA}", "bind_address = 0.0.0.0", "skip_name_resolve", "binlog_format = ROW"]
        lines += ["innodb_autoinc_lock_mode = 2", "wsrep_on = ON", "wsrep_provider = /usr/lib/galera/libgalera_smm.so"]
        lines += ["wsrep_cluster_name = assay", f"wsrep_cluster_address = gcomm://{addresses}"]
        lines += [f"wsrep_node_address = {node.address}", f"wsrep_node_name = {node.name}", "wsrep_sst_method = rsync"]
        tables = (TABLES + TABLE_OF_SETS).encode() if node.name == cluster.nodes[0].name else b""
        return {SETTINGS: "\n".join(lines).encode() + b"\n", BEGIN: tables}

    async def ready(self, node: Node) -> bool:
        session = connect(node.address)
        try:
            with session.cursor() as cursor:
                cursor.execute("show status like 'wsrep_ready'")
                return bool(cursor.fetchone() == ("wsrep_ready", "ON"))
        finally:
            session.close()
