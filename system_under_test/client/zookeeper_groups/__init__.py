"""Consumer groups of the old design: the members find each other, and agree, through ZooKeeper alone.

Modules: ``connector`` (what an application uses), ``config``, ``streams`` (what it reads from), ``subscription`` (by
name or by filter), ``allotment`` (who gets what), ``view`` (what ZooKeeper says of the group), ``registration``
(being a member, and the fence that this gives), ``session`` (whether it still is one), ``ownership`` (claims of
partitions), ``offsets`` (in ZooKeeper, in the offsets topic, or in both), ``defective`` (a historic defect).

The design is unsafe, and known to be: nobody but its own clock tells a consumer that is cut off, or slept, that others
have taken over. What can be done on its side is done: it hands out nothing, and commits nothing to ZooKeeper, once its
session may have expired. What was handed out just before is out of its hands.
"""
