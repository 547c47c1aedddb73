#!/usr/bin/env python3
"""Writes texts of other authors, split by source: one half to learn from, one half to count on (docs/safety.md).

    scripts/safety_sources.py CLONES [--half learn|count] > sources.jsonl
    handoffd scan --eval sources.jsonl
    scripts/safety_sources.py CLONES --pairs [--half learn|count] > pairs.jsonl

CLONES is a directory with clones of public repositories under their own names; a repository that is not there is left
out and named on the standard error. SOURCES below is the split: a source belongs to one half as a whole, for good, and
moves from `count` to `learn` once a text of it was read while a rule was written (never back). Of CyberSecEval every other English prompt
was read, by the first byte of its SHA-256: it is the one source in both halves. Rules, words and weights
come from the half `learn`; the figures of docs/safety.md come from the half `count`. Nothing is downloaded. Each line is
{"text", "label", "kind"}; the kind begins with the class that `handoffd scan --eval` reads it as, then names the source.

`--pairs` writes matched pairs from the plain orders of a half (`count` unless said): each order (label 1), and harmless
sentences that have its words (label 0): minutes that report it, a question of a customer about it, a denial, a plan, a
line of a log, a rule for people.
"""

import ast
import csv
import glob
import hashlib
import json
import os
import re
import sys

PARAGRAPHS = 1500


def found(clones, *path):
    return sorted(filter(os.path.isfile, glob.glob(os.path.join(clones, *path), recursive=True)))


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def rows(path):
    """The objects of a file of JSON lines; lines that are none are left out."""
    for line in read(path).splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def paragraphs(text):
    part = ""
    for paragraph in text.split("\n\n"):
        if part and len(part) + len(paragraph) > PARAGRAPHS:
            yield part
            part = ""
        part += paragraph + "\n\n"
    yield part


def documents(repository):
    """Markdown of a repository, some paragraphs a text."""
    for path in found(repository, "**", "*.md") + found(repository, "**", "*.mdx"):
        yield from (("doc", part) for part in paragraphs(read(path)))


def agent_security_bench(repository):
    for path in found(repository, "data", "all_attack_tools.jsonl"):
        yield from (("order", row["Attacker Instruction"]) for row in rows(path))


def was_read(prompt):
    return hashlib.sha256(prompt.encode()).digest()[0] % 2 == 0


def cyber_sec_eval_read(repository):
    yield from ((what, text) for what, text in all_of_cyber_sec_eval(repository) if what.startswith("en_") and was_read(text))


def cyber_sec_eval(repository):
    yield from ((what, text) for what, text in all_of_cyber_sec_eval(repository) if not what.startswith("en_") or not was_read(text))


def all_of_cyber_sec_eval(repository):
    base = (repository, "CybersecurityBenchmarks", "datasets", "prompt_injection")
    for path in found(*base, "prompt_injection.json"):
        for row in json.loads(read(path)):
            known = "override" if "ignore" in row["injection_variant"] else "other"
            yield f"en_{known}", row["user_input"]
    for path in found(*base, "prompt_injection_multilingual_machine_translated.json"):
        for row in json.loads(read(path)):
            yield row["speaking_language"].split("/")[0].lower(), row["user_input"]


def cyber_sec_questions(repository):
    for path in found(repository, "CybersecurityBenchmarks", "datasets", "mitre_frr", "mitre_frr.json"):
        yield from (("questions", row.get("mutated_prompt") or row.get("prompt")) for row in json.loads(read(path)))


def spikee(repository):
    base = (repository, "spikee", "data", "workspace", "datasets")
    for path in found(*base, "*", "instructions.jsonl"):
        for row in rows(path):
            yield "order_" + str(row.get("lang", "en")), row.get("instruction")
    for path in found(*base, "*", "jailbreaks.jsonl"):
        for row in rows(path):
            text = row.get("text") or ""
            yield "wrapper_" + str(row.get("lang", "en")), re.sub(r"(?i)<<[a-z_]*>>", "Go on with that.", text)


def tensor_trust(repository):
    for path in found(repository, "benchmarks", "*", "v1", "*.jsonl"):
        what = "extraction" if "extraction" in path else "hijacking"
        yield from ((what, row["attack"]) for row in rows(path))


def piguard(repository):
    for path in found(repository, "datasets", "valid.json"):
        yield from (("injection", row["prompt"]) for row in json.loads(read(path)) if row["label"] == 1)


def promptmap(repository):
    for path in found(repository, "rules", "prompt_stealing", "*.yaml") + found(repository, "rules", "distraction", "*.yaml"):
        block = re.search(r"^prompt:\s*\|?-?\s*\n?(.*?)(?=^\w+:|\Z)", read(path), re.S | re.M)
        if block:
            yield "extraction", re.sub(r"^  ", "", block.group(1), flags=re.M)


def giskard(repository):
    for path in found(repository, "prompt_injections.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            yield from (("mixed", row["prompt"]) for row in csv.DictReader(file))


def wasp_orders(repository):
    for path in found(repository, "webarena_prompt_injections", "configs", "croissant", "attacks_in_webarena_format.jsonl"):
        yield from (("order", row["instruction"]) for row in rows(path) if isinstance(row.get("instruction"), str))


def zoo(repository):
    for path in found(repository, "scenarios", "*.json"):
        for one in json.loads(read(path)).get("untrustedInputs", []):
            if isinstance(one, dict):
                yield "injection", one.get("content") or one.get("text") or one.get("body")


def agentdojo_goals(repository):
    """Goals of injection tasks: plain strings, and templates whose fields the class sets to plain strings."""
    for path in found(repository, "src", "agentdojo", "default_suites", "**", "*injection_tasks.py"):
        for node in ast.walk(ast.parse(read(path))):
            if not isinstance(node, ast.ClassDef):
                continue
            known = {}
            for line in node.body:
                names = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
                parts = line.value.values if isinstance(getattr(line, "value", None), ast.JoinedStr) else [getattr(line, "value", None)]
                values = [known.get(getattr(part.value, "id", None)) if isinstance(part, ast.FormattedValue)
                          else getattr(part, "value", None) for part in parts]
                if names and all(isinstance(value, str) for value in values):
                    known[getattr(names[0], "id", "")] = "".join(values)
            if "GOAL" in known:
                yield "order", known["GOAL"]


def agentdojo_texts(repository):
    """Mail, files, messages and reviews of its environments, the places for injections left empty."""
    for path in found(repository, "src", "agentdojo", "data", "suites", "**", "*.yaml"):
        if "injection_vectors" in path:
            continue
        text = re.sub(r"\{injection_?\w*\}|\{\w*injection\w*\}", "", read(path))
        for record in re.split(r"(?m)^\s*- (?=\w+:)|^\w+:\s*$", text):
            yield "tool_output", record


def webarena(repository):
    for path in found(repository, "visualwebarena", "config_files", "wa", "test_webarena.raw.json"):
        yield from (("user_turn", row["intent"]) for row in json.loads(read(path)))


def not_inject(repository):
    for path in found(repository, "datasets", "NotInject_*.json"):
        yield from (("not_inject", row["prompt"]) for row in json.loads(read(path)))


def tau_bench(repository):
    kinds = {"tool": "tool_output", "user": "user_turn"}
    for path in found(repository, "historical_trajectories", "*.json"):
        try:
            runs = json.loads(read(path))
        except ValueError:
            continue
        turns = {(turn["role"], turn["content"]) for run in runs for turn in run.get("traj", [])
                 if isinstance(turn.get("content"), str)}
        yield from ((kinds.get(role, "data"), text) for role, text in sorted(turns))


def tau2_bench(repository):
    base = (repository, "data", "tau2", "domains")
    for path in found(*base, "banking_knowledge", "documents", "**", "*.json"):
        document = json.loads(read(path))
        yield "tool_policy", document if isinstance(document, str) else json.dumps(document)
    for path in found(*base, "*", "*policy*.md"):
        yield from (("tool_policy", part) for part in paragraphs(read(path)))
    for domain in ("retail", "airline", "banking_knowledge"):
        for path in found(*base, domain, "db.json"):
            for table in json.loads(read(path)).values():
                if isinstance(table, dict):
                    yield from (("tool_output", json.dumps(row)) for row in list(table.values())[:400])
    for path in found(*base, "*", "tasks.json"):
        for task in json.loads(read(path)):
            told = task.get("user_scenario", {}).get("instructions")
            yield from (("user_turn", text) for text in (told.values() if isinstance(told, dict) else [told]))


def swe_agent(repository):
    for path in found(repository, "**", "*.traj"):
        try:
            steps = json.loads(read(path)).get("trajectory", [])
        except ValueError:
            continue
        for step in steps:
            yield "tool_output", step.get("observation")
            yield "data", step.get("thought")


def bfcl(repository):
    base = (repository, "berkeley-function-call-leaderboard", "bfcl_eval", "data")
    for name in ("BFCL_v4_multi_turn_base", "BFCL_v4_live_multiple", "BFCL_v4_simple_python"):
        for path in found(*base, name + ".json"):
            for row in rows(path):
                for turn in (turn for turns in row["question"] for turn in turns):
                    yield "user_turn", turn["content"]
                if "initial_config" in row:
                    yield "tool_state", json.dumps(row["initial_config"])
                if "function" in row:
                    yield "tool_schema", json.dumps(row["function"])


# Half, repository, what the texts are, label, reader.
SOURCES = (
    ("learn", "AIOS_agent", "asb", 1, agent_security_bench),
    ("learn", "spikee", "spikee", 1, spikee),
    ("learn", "tensor-trust-data", "tensor_trust", 1, tensor_trust),
    ("learn", "PIGuard", "piguard", 1, piguard),
    ("learn", "promptmap", "promptmap", 1, promptmap),
    ("learn", "PurpleLlama", "cyber_sec_eval", 1, cyber_sec_eval_read),
    ("count", "PurpleLlama", "cyber_sec_eval", 1, cyber_sec_eval),
    ("count", "prompt-injections", "giskard", 1, giskard),
    ("count", "wasp", "wasp", 1, wasp_orders),
    ("count", "agentdojo", "agentdojo", 1, agentdojo_goals),
    ("count", "prompt-injection-zoo", "zoo", 1, zoo),
    ("learn", "tau-bench", "traffic_tau", 0, tau_bench),
    ("learn", "gorilla", "traffic_bfcl", 0, bfcl),
    ("learn", "tau2-bench", "traffic_tau2", 0, tau2_bench),
    ("count", "SWE-agent", "traffic_swe", 0, swe_agent),
    ("count", "wasp", "traffic_webarena", 0, webarena),
    ("count", "agentdojo", "traffic_agentdojo", 0, agentdojo_texts),
    ("learn", "PayloadsAllTheThings", "security_payloads", 0, documents),
    ("learn", "www-project-top-10-for-large-language-model-applications", "security_owasp", 0, documents),
    ("learn", "CheatSheetSeries", "security_cheat_sheets", 0, documents),
    ("learn", "www-project-ai-testing-guide", "security_testing_guide", 0, documents),
    ("learn", "prompt-injection-defenses", "security_defenses", 0, documents),
    ("learn", "rebuff", "security_rebuff", 0, documents),
    ("learn", "vigil-llm", "security_vigil", 0, documents),
    ("learn", "PIPE", "security_pipe", 0, documents),
    ("learn", "garak", "security_garak", 0, documents),
    ("learn", "atlas-data", "security_atlas", 0, documents),
    ("learn", "Prompt-Injection-Firewall", "security_firewall", 0, documents),
    ("learn", "AI-Prompt-Injection-Detector", "security_detector", 0, documents),
    ("learn", "awesome-prompt-injection", "security_awesome", 0, documents),
    ("learn", "prompt-injection", "security_game", 0, documents),
    ("learn", "guardrails", "guides_guardrails", 0, documents),
    ("learn", "promptflow", "guides_promptflow", 0, documents),
    ("learn", "langsmith-cookbook", "guides_langsmith", 0, documents),
    ("count", "NeMo-Guardrails", "security_nemo", 0, documents),
    ("count", "deepteam", "security_deepteam", 0, documents),
    ("count", "llm-guard", "security_llm_guard", 0, documents),
    ("count", "PyRIT", "security_pyrit", 0, documents),
    ("count", "giskard", "security_giskard", 0, documents),
    ("count", "LLMSecurityGuide", "security_guide", 0, documents),
    ("count", "agentic_security", "security_agentic", 0, documents),
    ("count", "ai-scanner", "security_ai_scanner", 0, documents),
    ("count", "Prompt-Engineering-Guide", "guides_prompting", 0, documents),
    ("count", "PurpleLlama", "security", 0, cyber_sec_questions),
    ("count", "PIGuard", "security", 0, not_inject),
)


def put(text, label, kind):
    print(json.dumps({"text": text, "label": label, "kind": kind}, ensure_ascii=False))


def texts(clones, half):
    """Every text of a half, once a source: its label, its kind and itself."""
    for own, repository, name, label, reader in SOURCES:
        if half not in (None, own):
            continue
        before = set()
        for what, text in reader(os.path.join(clones, repository)):
            if isinstance(text, str) and text.strip() and (what, text) not in before:
                before.add((what, text))
                kind = what if what.split("_")[0] in ("user", "data", "tool") else f"tool_{what}"
                yield label, f"{kind}:{name}:{own}", text
        if not before:
            print(f"{repository}: not there, or nothing in it that {reader.__name__} reads", file=sys.stderr)


def pairs(clones, half):
    """Orders, and the same words said of what was, what is asked, what is denied, planned, logged and asked of people."""
    said = ("At the meeting Dana reported that the team had decided to {}.",
            "A customer wrote to ask how to {}.",
            "It is not true that anybody was ever asked to {}.",
            "Next quarter the operations team plans to {}.",
            "2026-03-02 10:14:07 INFO job 4411 began to {}",
            "Only members of the operations team are allowed to {}.")
    before = set()
    for own, repository, name, label, reader in SOURCES:
        if label == 0 or own != half:
            continue
        for what, text in reader(os.path.join(clones, repository)):
            order = (text or "").strip().rstrip(".")
            # A second sentence would still be an order.
            one = re.match(r"[A-Z][a-z]+ ", order) and not re.search(r"[.!?:]\s", order)
            if what.startswith("order") and one and len(order) < 400 and order not in before:
                before.add(order)
                put(text, 1, f"tool_pair:{name}:{own}")
                bare = re.sub(r"^Please ", "", order)
                for sentence in said:
                    put(sentence.format(bare[0].lower() + bare[1:]), 0, f"tool_pair:{name}:{own}")


def main(arguments):
    paired = "--pairs" in arguments
    arguments = [argument for argument in arguments if argument != "--pairs"]
    half = arguments[2] if len(arguments) == 3 and arguments[1] == "--half" else None
    if not (len(arguments) == 1 or half in ("learn", "count")):
        sys.exit(__doc__)
    if paired:
        return pairs(arguments[0], half or "count")
    for label, kind, text in texts(arguments[0], half):
        put(text, label, kind)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
