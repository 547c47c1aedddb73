"""The surface of the package against the table of names that both SDKs share (docs/sdk/names.md)."""

from __future__ import annotations

import functools
import importlib
import pickle
import re
import subprocess
import sys
import warnings

import pytest
from broker import REPOSITORY

import handoffd
from handoffd import errors


def rows() -> list[tuple[str, str, str]]:
    text = (REPOSITORY / "docs" / "sdk" / "names.md").read_text().split("## Names until")[0]
    cells = [[part.strip().strip("`") for part in line.split("|")[1:4]] for line in text.splitlines() if line.startswith("|")]
    table = [(python, typescript, why) for python, typescript, why in cells[2:]]
    assert len(table) > 40
    return table


def found(name: str) -> object:
    if name == "models":
        return importlib.import_module("handoffd.models")
    head, _, rest = name.partition(".")
    if not rest:
        return getattr(handoffd, head)
    return functools.reduce(getattr, rest.split("."), importlib.import_module(f"handoffd.{head}"))


def test_the_table_has_every_name_of_the_package_and_no_other() -> None:
    named = [python for python, _, _ in rows() if python]
    assert len(named) == len(set(named))
    assert {name for name in named if "." not in name} == set(handoffd.__all__)
    for name in named:
        assert found(name) is not None, name


def test_names_of_both_languages_are_spelled_alike_or_say_why_not() -> None:
    for python, typescript, why in rows():
        bare = python.rpartition(".")[2]
        camel = re.sub(r"_([a-z])", lambda letter: letter[1].upper(), bare) if bare.islower() else bare
        assert camel == typescript or why or "ERROR" in typescript or typescript in ("DEFAULT_URL", "toError"), (
            python,
            typescript,
        )


def test_names_until_0_3_still_work_and_say_so() -> None:
    for old, new in handoffd._RENAMED.items():
        with pytest.warns(DeprecationWarning, match=new):
            assert getattr(handoffd, old) is getattr(handoffd, new)
    with pytest.raises(AttributeError):
        handoffd.nothing_of_the_kind  # noqa: B018
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(handoffd.__all__) <= set(dir(handoffd))


def test_importing_the_package_loads_neither_models_nor_client() -> None:
    """Finding K3 of 0.3.0: the import took 0.85 s. What is loaded is counted, not the time."""
    program = "import sys, handoffd; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "handoffd" in loaded
    assert not {"pydantic", "httpx2", "asyncio", "handoffd.models"} & set(loaded)
    program = (
        "import sys; from handoffd import Client, Worker, build_handoff_message; Client('http://x'); print(*sorted(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "handoffd.worker" in loaded and "handoffd.models" not in loaded


PROBLEM = {
    "code": "CONFLICT",
    "detail": "taken",
    "failures": [{"stage": "state", "code": "CONFLICT", "pointer": "/x", "message": "no"}],
}
EACH = [
    errors.HandoffdError("plain"),
    errors.TransportError("away", sent=True),
    errors.AnswerError("a page"),
    errors.WaitTimeoutError("h", "PENDING", 2),
    errors.HandoffEndedBadlyError("h", "FAILED", "CODE", "in words"),
    errors.WindowExceededError(5, 4),
    errors.VerificationError("no"),
    errors.problem_error(409, PROBLEM, retry_after=3),
    errors.StepReusedError(409, PROBLEM, step_digest="sha256:1", stored_digest="sha256:2"),
    errors.Reject("CODE", {"a": 1}),
    errors.Fail("CODE", "words"),
    errors.LeaseLostError("gone"),
]


@pytest.mark.parametrize("error", EACH, ids=lambda error: type(error).__name__)
def test_errors_come_through_a_pickle_whole(error: errors.HandoffdError) -> None:
    """Finding K3 of 0.3.0: a pool of processes hung."""
    error.add_note("seen")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert again.args == error.args and again.__dict__ == error.__dict__


def test_every_error_of_the_module_is_pickled_by_the_rule() -> None:
    kinds = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)}
    assert len(kinds) > 30 and all(one.__reduce__ is errors.HandoffdError.__reduce__ for one in kinds)
