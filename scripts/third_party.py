#!/usr/bin/env python3
"""Prints what the broker's binary is made of: each crate with its version, licence, address and the texts that it comes with.

    scripts/third_party.py >THIRD-PARTY.txt

It asks `cargo metadata` for the packages that the binary's build for this platform uses, and reads their files from cargo's own
copies. A crate without a text of its own has its licence's name alone.
"""

import json
import subprocess
import sys
from pathlib import Path

TEXTS = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*")


def used() -> list[dict]:
    """The packages of the normal dependencies of `handoffd`, without the workspace's own."""
    said = subprocess.check_output(["rustc", "-vV"], text=True).splitlines()
    host = next(line.split(": ")[1] for line in said if line.startswith("host"))
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--features", "full", "--filter-platform", host]
    found = json.loads(subprocess.check_output(command))
    by_id = {one["id"]: one for one in found["packages"]}
    nodes = {one["id"]: one for one in found["resolve"]["nodes"]}
    own = set(found["workspace_members"])
    left = [one for one in own if by_id[one]["name"] == "handoffd"]
    seen = set()
    while left:
        at = left.pop()
        if at in seen:
            continue
        seen.add(at)
        left += [dep["pkg"] for dep in nodes[at]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    return sorted((by_id[one] for one in seen - own), key=lambda one: (one["name"], one["version"]))


def main() -> int:
    packages = used()
    print(f"The binary of handoffd contains parts of these {len(packages)} packages. Each keeps its own licence.\n")
    texts: dict[str, list[str]] = {}
    for one in packages:
        name = f"{one['name']} {one['version']}"
        print(f"{name}: {one['license'] or 'see its text'}  {one['repository'] or one['homepage'] or ''}".rstrip())
        folder = Path(one["manifest_path"]).parent
        for file in sorted(file for pattern in TEXTS for file in folder.glob(pattern) if file.is_file()):
            texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
    for text, names in texts.items():
        print(f"\n{'-' * 80}\n{', '.join(dict.fromkeys(names))}\n{'-' * 80}\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
