"""Files of a broker: the real file system behind the ``Storage`` seam, and the one way to replace a file safely."""

from assay.system_under_test.storage.atomic import write_atomic
from assay.system_under_test.storage.local import LocalStorage

__all__ = ["LocalStorage", "write_atomic"]
