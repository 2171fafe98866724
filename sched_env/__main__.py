"""Run the command line as ``python -m sched_env``."""

from __future__ import annotations

import sys

from sched_env.cli.main import main

sys.exit(main())
