"""The broker's binary, which a platform wheel brings: where it is, and what it checks offline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ._wire import plain
from .errors import Failure, HandoffdError
from .validation import CHECKED, MAX_CHECKPOINT_BYTES, ValidationResult, _offline, _result

OWN_VARIABLES: Final = ("HANDOFFD_BINARY", "HANDOFFD_AGENT_ID", "HANDOFFD_SIGNING_SECRET")
"""Variables of this package, which the broker would take for misspelt settings."""
MISSING: Final = (
    "this installation has no broker: its wheel is for any platform. Install a wheel for this platform, or name a binary in "
    "HANDOFFD_BINARY."
)


def binary_path() -> Path | None:
    """The broker's binary: `HANDOFFD_BINARY`, beside this Python, or on the path; `None` where there is none."""
    name = "handoffd.exe" if os.name == "nt" else "handoffd"
    places = [os.environ.get("HANDOFFD_BINARY"), Path(sysconfig.get_path("scripts")) / name, shutil.which(name)]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def binary_environment() -> dict[str, str]:
    """The environment for the binary: without the variables of this package."""
    return {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}


def validate_with_binary(message: Mapping[str, Any] | bytes | str) -> ValidationResult:
    """Checks a message as `validate_handoff_message` does, and by the safety rules, which the broker's binary has.

    The message lies in a file of the temporary folder meanwhile, readable for this user alone. A signature is not checked.

    Raises:
        HandoffdError: The binary is missing, or cannot be run.
        TypeError: The mapping has values that JSON cannot hold.
        ValueError: The mapping has a number that is not finite.
    """
    found = binary_path()
    if found is None:
        raise HandoffdError(MISSING)
    if not isinstance(message, (bytes, str)):
        message = json.dumps(plain(message), allow_nan=False)
    with tempfile.TemporaryDirectory(prefix="handoffd-") as folder:
        file = Path(folder) / "message.json"
        file.write_bytes(message.encode() if isinstance(message, str) else message)
        command = [str(found), "--output", "json", "validate", str(file)]
        try:
            done = subprocess.run(command, env=binary_environment(), capture_output=True, check=False)  # noqa: S603
        except OSError as error:
            raise HandoffdError(f"{found} cannot be run: {error}") from error
    if done.returncode not in (0, 1):
        raise HandoffdError(f"handoffd validate ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    failures = [Failure.from_json(one) for one in json.loads(done.stdout)["failures"]]
    stages = _offline(message, (), None, MAX_CHECKPOINT_BYTES).checked
    return _result(failures, (*stages, "safety") if CHECKED[-1] in stages else stages)
