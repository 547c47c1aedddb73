"""Build hook: with `HANDOFFD_BINARY` (a built broker) the wheel is for its platform and brings the binary as the command
`handoffd`, and `handoffd-verify` where it lies beside the broker; without, it is pure."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BrokerBinary(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root).parent.parent
        for name in ("LICENSE", "THIRD-PARTY.txt") if version != "editable" else ():
            # The notices are made by scripts/sdk-packages; a wheel of a development build goes without them.
            places = (root / name, root / "dist" / "sdk" / name)
            found = next((place for place in places if place.is_file()), None)
            if found is not None:
                build_data["force_include"][str(found)] = f"handoffd/{name}"
        given = os.environ.get("HANDOFFD_BINARY")
        if not given:
            return
        binary = Path(given).resolve(strict=True)
        said = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.split()
        if said[-1] != self.metadata.version:
            raise SystemExit(f"the binary is {said[-1]}, the package {self.metadata.version}")
        name = "handoffd.exe" if binary.suffix == ".exe" else "handoffd"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ.get('HANDOFFD_PLATFORM') or platform(binary)}"
        verifier = binary.with_name(name.replace("handoffd", "handoffd-verify"))
        build_data["shared_scripts"] = {
            str(program): command for program, command in [(binary, name), (verifier, verifier.name)] if program.is_file()
        }


def platform(binary: Path) -> str:
    """The wheel's platform: on Linux by the newest glibc that the binary asks for, any libc where it asks for none."""
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not here.startswith("linux_"):
        return here
    machine = here.removeprefix("linux_")
    wanted = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", binary.read_bytes())}
    if not wanted:
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    major, minor = max(wanted)
    return f"manylinux_{major}_{minor}_{machine}"
