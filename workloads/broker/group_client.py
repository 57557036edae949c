"""Client of consumer groups: a member of each group that it polls, and a client of the log."""

from assay.workloads.broker.group_operations import MEMBER_VERBS, MemberSession
from assay.workloads.broker.log_client import LogClient


class GroupClient(LogClient):
    """Client of members; operations without a key are theirs."""

    verbs = (*LogClient.verbs, *MEMBER_VERBS)
    session_type = MemberSession
