"""`python -m handoffd …`: the broker's binary, as the command `handoffd` that a platform wheel brings."""

from __future__ import annotations

import os
import subprocess
import sys

from .binary import MISSING, binary_environment, binary_path


def main() -> int:
    """Runs the binary with this process's arguments; 3 where there is none."""
    found = binary_path()
    if found is None:
        print(f"handoffd: {MISSING}", file=sys.stderr)
        return 3
    command = [str(found), *sys.argv[1:]]
    if os.name == "posix":
        os.execve(found, command, binary_environment())  # noqa: S606
    return subprocess.run(command, env=binary_environment(), check=False).returncode  # noqa: S603


if __name__ == "__main__":
    raise SystemExit(main())
