"""``python -m torchsonic.cli``."""

import sys

from torchsonic.cli import main

sys.exit(main())
