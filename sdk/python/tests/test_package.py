"""What is in the repository and in the wheels: generated parts, versions, the five minutes of the documentation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from broker import REPOSITORY, binary, free_port

from handoffd import __version__

PACKAGE = REPOSITORY / "sdk" / "python"
TOOLS = Path(sys.executable).parent
EXAMPLES = REPOSITORY / "examples" / "python"


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def test_generated_parts_are_those_of_the_openapi_document_and_the_schemas() -> None:
    run(sys.executable, PACKAGE / "tools" / "generate.py", "--check")


def test_the_version_is_the_brokers() -> None:
    cargo = (REPOSITORY / "Cargo.toml").read_text()
    declared = re.search(r'^version = "([^"]+)"', cargo, re.M)
    assert declared and declared[1] == __version__
    assert run(binary(), "--version").split()[-1] == __version__


@pytest.mark.parametrize("place", ["docs/sdk/python.md", "README.md", "sdk/python/README.md"])
def test_the_page_shows_the_examples_as_they_are(place: str) -> None:
    page = (REPOSITORY / place).read_text()
    for example in ("hello_worker.py", "hello_sender.py"):
        text = (EXAMPLES / example).read_text()
        assert f"```python\n{text}```" in page, example
        lines = [line for line in text.splitlines() if line.strip()]
        assert len(lines) <= 15, f"{example} has {len(lines)} lines"


def lines_of(program: str) -> int:
    return len([line for line in program.splitlines() if line.strip()])


def test_the_table_of_lines_counts_the_programs_that_there_are() -> None:
    docs = REPOSITORY / "docs" / "sdk"
    rows = re.findall(r"^\| \[[^]]+\]\((\S+)\.md\) \| (\d+) \| (\d+) \| (\d+) \|$", (docs / "lines.md").read_text(), re.M)
    assert len(rows) == 6
    for name, sender, worker, alone in rows:
        programs = re.findall(r"```python\n(.*?)```", (docs / f"{name}.md").read_text(), re.S)
        without = (EXAMPLES / "alone" / f"{name.replace('-', '_')}_alone.py").read_text()
        counted = [lines_of(one) for one in (programs[0], programs[-1], without)]
        assert counted == [int(sender), int(worker), int(alone)], name


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pure wheel and the one for this platform."""
    folder = tmp_path_factory.mktemp("wheels")
    stripped = folder / "handoffd"
    shutil.copy(binary(), stripped)
    if shutil.which("strip"):
        run("strip", stripped)
    built = {}
    for kind in ("pure", "platform"):
        given = {name: value for name, value in os.environ.items() if name != "HANDOFFD_BINARY"}
        if kind == "platform":
            given["HANDOFFD_BINARY"] = str(stripped)
        out = folder / kind
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, PACKAGE, env=given)
        built[kind] = next(out.glob("*.whl"))
    return built


def test_both_wheels_pass_the_registrys_check(wheels: dict[str, Path]) -> None:
    run(TOOLS / "twine", "check", "--strict", *wheels.values())
    assert wheels["pure"].name == f"handoffd-{__version__}-py3-none-any.whl"
    assert re.fullmatch(rf"handoffd-{re.escape(__version__)}-py3-none-(manylinux|macosx|win).*\.whl", wheels["platform"].name)
    for wheel in wheels.values():
        names = zipfile.ZipFile(wheel).namelist()
        assert {"handoffd/py.typed", "handoffd/schemas/2.2.json", "handoffd/models.py"} <= set(names)
        assert not [name for name in names if "tests/" in name]
        assert "handoffd/LICENSE" in names
    assert f"handoffd-{__version__}.data/scripts/handoffd" in zipfile.ZipFile(wheels["platform"]).namelist()


def test_five_minutes_in_an_empty_folder(wheels: dict[str, Path], tmp_path: Path) -> None:
    """pip install, handoffd demo, handoffd serve, and the two programs in processes of their own."""
    folder = tmp_path / "empty"
    folder.mkdir()
    venv.create(folder / "env", with_pip=True)
    bin_ = folder / "env" / "bin"
    run(bin_ / "pip", "install", "-q", wheels["platform"])
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HANDOFFD_", "PYTHON"))}
    assert "handoffd" in run(bin_ / "handoffd", "--version", env=env, cwd=folder)
    assert run(bin_ / "python", "-m", "handoffd", "--version", env=env, cwd=folder).split()[-1] == __version__
    told = run(bin_ / "handoffd", "demo", env=env, cwd=folder)
    assert "verif" in told.lower()
    port = free_port()
    env["HANDOFFD_LISTEN"], env["HANDOFFD_URL"] = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"
    serving = subprocess.Popen(
        [bin_ / "handoffd", "serve"], env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    working = None
    try:
        for _ in range(600):
            if (folder / "handoffd-data" / "admin.key").exists():
                break
            assert serving.poll() is None
            subprocess.run(["sleep", "0.1"], check=True)
        for example in EXAMPLES.glob("hello_*.py"):
            shutil.copy(example, folder)
        working = subprocess.Popen([bin_ / "python", "hello_worker.py"], env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
        # The worker registers `legal`; the sender may come before that, as in the page it does not.
        for _ in range(600):
            listed = subprocess.run(
                [bin_ / "handoffd", "agents", "list", "--output", "json"],
                env={**env, "HANDOFFD_API_KEY_FILE": "handoffd-data/admin.key"},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if '"legal"' in listed.stdout:
                break
            subprocess.run(["sleep", "0.1"], check=True)
        told = run(bin_ / "python", "hello_sender.py", env=env, cwd=folder)
        assert told == "COMPLETED: {'risk': 'low', 'clause': '4.2'}\n" or told == "COMPLETED: {'clause': '4.2', 'risk': 'low'}\n"
    finally:
        for process in (working, serving):
            if process is not None:
                process.terminate()
                assert process.wait(40) == 0


def test_the_pure_wheel_says_what_it_lacks(wheels: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels["pure"]) as wheel:
        wheel.extractall(tmp_path)
    env = {"PATH": "/nonexistent", "PYTHONPATH": str(tmp_path)}
    script = "import sysconfig, runpy; sysconfig.get_path = lambda _: '/nonexistent'; runpy.run_module('handoffd.__main__', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "HANDOFFD_BINARY" in done.stderr


def test_variables_of_the_package_do_not_end_the_broker() -> None:
    given = {"HANDOFFD_BINARY": str(binary()), "HANDOFFD_AGENT_ID": "legal", "HANDOFFD_SIGNING_SECRET": "hss_x"}
    env = {"PATH": os.environ["PATH"], "HANDOFFD_DATA_DIR": "/nonexistent/handoffd-data", **given}
    done = subprocess.run([sys.executable, "-m", "handoffd", "verify"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "is not a setting" not in done.stderr, done.stderr


@pytest.mark.parametrize("shadowed", ["cryptography", "opentelemetry"])
def test_optional_packages_are_optional(shadowed: str) -> None:
    script = f"import sys; sys.modules['{shadowed}'] = None; import handoffd; handoffd.build_handoff_message({{'agent_id': 'a', 'task': 't'}}, 'b')"
    run(sys.executable, "-c", script)
