"""Makes ``foreign_histories`` importable; test folders are no packages, so the name must stay unique."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
