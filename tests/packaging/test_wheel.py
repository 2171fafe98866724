"""The built wheel holds one package with all its parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_wheel_holds_only_sched_env(repository: Path) -> None:
    script = repository / ".ci" / "check_wheel.py"
    done = subprocess.run(
        [sys.executable, str(script)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "holds" in done.stdout
