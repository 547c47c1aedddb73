"""The programs of the frameworks' pages, as they stand there, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from broker import Broker
from conftest import MODULES, installed

from handoffd import Client

HERE = Path(__file__).parent
PAGES = [name for name in MODULES if name != "recipes"]


@pytest.mark.parametrize("name", PAGES)
def test_the_two_programs_of_a_page_work_together(name: str, tmp_path: Path) -> None:
    if not installed(MODULES[name]):
        pytest.skip("the framework is of another environment")
    page = name.replace("_", "-")
    broker = Broker(tmp_path).start()
    with Client.local(broker.url, data_dir=broker.data_dir) as admin:
        keys = {
            agent: admin.agents.create(agent_id=agent, handoff_targets=targets).api_key
            for agent, targets in {"legal": [], "intake": ["legal"]}.items()
        }

        def environment(agent: str) -> dict[str, str]:
            inherited = {key: value for key, value in os.environ.items() if not key.startswith("HANDOFFD_")}
            return {**inherited, "HANDOFFD_URL": broker.url, "HANDOFFD_API_KEY": keys[agent]}

        command = [sys.executable, str(HERE / "page_program.py"), page]
        working = subprocess.Popen([*command, "-1"], env=environment("legal"))
        try:
            for _ in range(2):
                sent = subprocess.run(
                    [*command, "0"], env=environment("intake"), capture_output=True, text=True, timeout=180, check=False
                )
                assert sent.returncode == 0, sent.stderr
                assert "Legal says: " in sent.stdout and "low" in sent.stdout, sent.stdout
        finally:
            working.terminate()
            assert working.wait(60) == 0
        done = admin.handoffs.list().items
        assert [(one.status, one.from_agent.agent_id) for one in done] == [("COMPLETED", "intake")], (
            "a finished run is told again"
        )
    broker.stop()
