"""Consumer groups of the old design: the members find each other, and agree, through ZooKeeper alone.

To read in this order: ``connector`` (what an application uses), ``config``, ``subscription`` (topics by name or by
filter), ``view`` (what ZooKeeper has of the group, and so who gets what), ``registration`` (being a member, the fence
that this gives, and whether it still is one), ``ownership`` (claims of partitions), ``offsets`` (in ZooKeeper, in the
offsets topic, or in both), ``owned_calls`` (commits that end when a claim is lost), ``streams`` (what the application
reads from).

The design is unsafe, and known to be: only its own clock shows a consumer that was cut off, or slept, that others may
have taken over. It does what can be done on its side: once its session may have expired it hands out nothing, and
commits nothing to ZooKeeper. Records that were handed out just before are beyond its control.

Imports the consumer and the assignors of ``client``, and ``zookeeper``; ``client`` takes its settings and sessions from
here, and workloads import it.
"""
