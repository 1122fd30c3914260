"""Benchmarks of this checkout beside another one's, in turn: first paint, the list at 10,000 rows, and start-up.

Run: git worktree add /tmp/before 545d69b && (cd /tmp/before && scripts/setup test)
     python benchmarks/pairs.py /tmp/before [pairs]

Each checkout is run by its own .venv, so that nothing of the other is imported, and with its bytecode, as an installed
program is. Which of the two is first changes from
pair to pair. A row has the medians of both, and the middle, least and greatest ratio of the pairs: below 1 this
checkout is the faster. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
COMMANDS = (
    ("first_paint.py", "1000", "3"),
    ("first_paint.py", "10000", "3"),
    ("tui_table.py", "10000"),
    ("startup.py",),
)
TABLE = re.compile(r"^(?P<name>.*?\S) {2,}(?P<figure>\d+\.\d+)\b")


def measure(checkout: Path, *words: str) -> dict[str, float]:
    """Run one benchmark in a checkout; gives the figure of each row that it prints."""
    python = checkout / ".venv" / "bin" / "python"
    command = [str(python), f"benchmarks/{words[0]}", *words[1:]]
    done = subprocess.run(command, cwd=checkout, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    found = figures(done.stdout)
    if not found:  # a missed goal is exit code 1 as well, and no failure
        sys.exit(f"{' '.join(command)} in {checkout} printed no figure:\n{done.stdout}{done.stderr}")
    return {f"{words[0]} {name}": figure for name, figure in found.items()}


def figures(text: str) -> dict[str, float]:
    """The figures in what a benchmark printed: a JSON object a line, or a table with the median first."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            told = json.loads(line)
            found[f"CPU s at {told['rows']:,} rows"] = float(told["cpu_s"])
        elif row := TABLE.match(line):
            found[row["name"]] = float(row["figure"])
    return found


def main() -> None:
    other, count = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    for checkout in (
        HERE,
        other,
    ):  # else the first run pays for compiling, and each run where the environment forbids it
        python = str(checkout / ".venv" / "bin" / "python")
        subprocess.run(
            [python, "-m", "compileall", "-q", "src", "benchmarks"], cwd=checkout, env=ENVIRONMENT, check=True
        )
    pairs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(count):
        for words in COMMANDS:
            first, second = (HERE, other) if number % 2 else (other, HERE)
            told = {checkout: measure(checkout, *words) for checkout in (first, second)}
            for name in told[HERE].keys() & told[other].keys():
                pairs[name].append((told[HERE][name], told[other][name]))
        print(f"pair {number + 1} of {count}", file=sys.stderr)
    print(f"{'':44}{'here':>9}{'other':>9}{'ratio':>8}{'least':>8}{'most':>8}")
    for name, both in sorted(pairs.items()):
        ratios = [here / there for here, there in both if there]
        here, there = (statistics.median(side) for side in zip(*both, strict=True))
        if ratios:
            middle = statistics.median(ratios)
            print(f"{name:44}{here:>9.2f}{there:>9.2f}{middle:>8.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}")


if __name__ == "__main__":
    main()
