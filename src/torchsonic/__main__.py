"""``python -m torchsonic``."""

import sys

from torchsonic.cli import main

if __name__ == "__main__":
    sys.exit(main())
