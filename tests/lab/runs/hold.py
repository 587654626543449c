"""Holds the lock of a folder until it is killed."""

import sys
import time
from pathlib import Path

from torchsonic.lab.runs.lock import locked

if __name__ == "__main__":
    with locked(Path(sys.argv[1])):
        time.sleep(600)
