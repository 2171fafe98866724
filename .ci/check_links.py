"""Check that every relative link in the Markdown files leads to a file, and to a heading in it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Return 0 if all links lead somewhere."""
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("runs/*.md")])
    faults = [fault for file in files for fault in faults_in(file)]
    for fault in faults:
        print(f"docs: {fault}", file=sys.stderr)
    if not faults:
        print(f"docs: the links of {len(files)} files lead somewhere")
    return 1 if faults else 0


def faults_in(file: Path) -> list[str]:
    """Return the broken links of one file."""
    faults: list[str] = []
    for target in LINK.findall(FENCE.sub("", file.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (file.parent / name).resolve() if name else file
        if not found.exists():
            faults.append(f"{file.relative_to(ROOT)}: {target} leads nowhere")
        elif anchor and found.suffix == ".md" and anchor not in _anchors(found):
            faults.append(f"{file.relative_to(ROOT)}: {target} names no heading")
    return faults


def _anchors(file: Path) -> set[str]:
    headings = HEADING.findall(FENCE.sub("", file.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


if __name__ == "__main__":
    sys.exit(main())
