"""`python -m handoffd …`: the broker's binary, as the command `handoffd` that a platform wheel brings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

OWN_VARIABLES = ("HANDOFFD_BINARY", "HANDOFFD_AGENT_ID", "HANDOFFD_SIGNING_SECRET")
"""Variables of this package, which the broker would take for misspelt settings."""


def binary() -> Path | None:
    """The broker's binary: `HANDOFFD_BINARY`, beside this Python, or on the path; `None` where there is none."""
    name = "handoffd.exe" if os.name == "nt" else "handoffd"
    places = [os.environ.get("HANDOFFD_BINARY"), Path(sysconfig.get_path("scripts")) / name, shutil.which(name)]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def main() -> int:
    """Runs the binary with this process's arguments; 3 where there is none."""
    found = binary()
    if found is None:
        print(
            "handoffd: this installation has no broker: its wheel is for any platform. Install a wheel for this platform, "
            "or name a binary in HANDOFFD_BINARY.",
            file=sys.stderr,
        )
        return 3
    environment = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    if os.name == "posix":
        os.execve(found, [str(found), *sys.argv[1:]], environment)  # noqa: S606
    return subprocess.run([str(found), *sys.argv[1:]], env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    raise SystemExit(main())
