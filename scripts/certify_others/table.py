"""The reports of several runs of the kit as one Markdown table, and below it what was seen where a claim did not pass.

Usage: table.py NAME=REPORT.json …
"""

import json
import pathlib
import sys

runs = {}
for argument in sys.argv[1:]:
    name, _, path = argument.rpartition("=")
    runs[name] = {one["claim"]: one for one in json.loads(pathlib.Path(path).read_text())["claims"]}

WORDS = {"pass": "pass", "fail": "FAIL", "unsupported": "unsupported", "not-claimed": "not claimed"}
print(f"| claim | {' | '.join(runs)} |")
print("|---|" + "---|" * len(runs))
for claim in next(iter(runs.values())):
    print(f"| `{claim}` | {' | '.join(WORDS[run[claim]['verdict']] for run in runs.values())} |")
for name, run in runs.items():
    print(f"\n{name}:\n")
    for claim, one in run.items():
        shown = one["evidence"].startswith("examined") or one["verdict"] in ("fail", "unsupported")
        if shown or claim in ("delivered", "killed", "latency"):
            print(f"- `{claim}`, {WORDS[one['verdict']]}: {one['evidence']}")
