"""`python -m exec_server`."""

import sys

from exec_server.cli.main import main

sys.exit(main())
