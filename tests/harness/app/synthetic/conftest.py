"""Makes ``plain_objects`` importable; test folders are no packages, so this name must stay unique."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
