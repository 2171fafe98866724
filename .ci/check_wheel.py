"""Build the wheel and check what is in it: one package, all of its parts, no bare names.

Other distributions own names such as ``agents``: nothing but ``sched_env`` may reach
site-packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("agents", "baselines", "configs")
PARTS = ("pyproject.toml", "README.md", "LICENSE", "sched_env", *LINKED)
LEFTOVERS = shutil.ignore_patterns("__pycache__")
DATA_SUFFIXES = (".csv", ".json", ".md", ".npz", ".safetensors", ".yaml")


def main() -> int:
    """Return 0 if the wheel holds what it should."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = _build(Path(folder))
        names = zipfile.ZipFile(wheel).namelist()
    faults = list(_faults(names))
    for fault in faults:
        print(f"wheel: {fault}", file=sys.stderr)
    if not faults:
        print(f"wheel: {wheel.name} holds {len(names)} files, only sched_env")
    return 1 if faults else 0


def _build(folder: Path) -> Path:
    """Build the wheel from a copy of the sources, as a clone has them."""
    copy = folder / "source"
    copy.mkdir()
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=LEFTOVERS)
        else:
            shutil.copyfile(source, copy / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    built = subprocess.run([*command, str(copy)], check=False, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"wheel: the build failed:\n{built.stdout}{built.stderr}")
    return next(folder.glob("*.whl"))


def _faults(names: list[str]) -> list[str]:
    """Return what is wrong with these file names."""
    faults: list[str] = []
    tops = {name.split("/")[0] for name in names}
    strangers = sorted(top for top in tops if top != "sched_env" and ".dist-info" not in top)
    faults += [f"{top} would land in site-packages" for top in strangers]
    inside = set(names)
    for folder in ("sched_env", *LINKED):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            wanted = name if folder == "sched_env" else f"sched_env/{name}"
            is_content = path.suffix == ".py" or path.suffix in DATA_SUFFIXES
            if path.is_file() and is_content and wanted not in inside:
                faults.append(f"{name} is missing")
    if "sched_env/py.typed" not in inside:
        faults.append("sched_env/py.typed is missing")
    return faults


if __name__ == "__main__":
    sys.exit(main())
