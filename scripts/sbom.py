"""Writes a CycloneDX 1.5 SBOM of the binaries from `cargo metadata` (standard input) and Cargo.lock.

Lists what is compiled into them (normal dependencies, all targets' filters applied) and what runs at build time
(`scope` is `excluded`). Dev-dependencies are left out. Same input, same bytes: no time and no random serial number.
"""

import json
import sys
import tomllib

version = sys.argv[1]
metadata = json.load(sys.stdin)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
with open("Cargo.lock", "rb") as lock:
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.load(lock)["package"]}
ROOTS = ("handoffd", "handoffd-verify")
roots = [id for id in metadata["workspace_members"] if packages[id]["name"] in ROOTS]


def reach(kinds):
    """Returns every package that the roots reach over dependencies of these kinds."""
    seen, todo = set(), list(roots)
    while todo:
        id = todo.pop()
        if id not in seen:
            seen.add(id)
            todo += [d["pkg"] for d in nodes[id]["deps"] if any(k["kind"] in kinds for k in d["dep_kinds"])]
    return seen


def reference(id):
    return f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}"


def component(id, scope):
    package = packages[id]
    entry = {"type": "library", "bom-ref": reference(id), "name": package["name"], "version": package["version"], "scope": scope}
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["license"]:
        # Old manifests write a slash for OR.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    entry["purl"] = reference(id)
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


linked = reach({None})
everything = reach({None, "build"})
listed = sorted(everything - set(roots), key=reference)
application = {"type": "application", "bom-ref": f"handoffd@{version}", "name": "handoffd", "version": version}
application["licenses"] = [{"license": {"id": "Apache-2.0"}}]
edges = [{"ref": application["bom-ref"], "dependsOn": sorted({reference(d["pkg"]) for r in roots for d in nodes[r]["deps"] if d["pkg"] in listed and any(k["kind"] != "dev" for k in d["dep_kinds"])})}]
for id in listed:
    edges.append({"ref": reference(id), "dependsOn": sorted({reference(d["pkg"]) for d in nodes[id]["deps"] if d["pkg"] in everything and any(k["kind"] != "dev" for k in d["dep_kinds"])})})
bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": application},
    "components": [component(id, "required" if id in linked else "excluded") for id in listed],
    "dependencies": edges,
}
json.dump(bom, sys.stdout, indent=1, sort_keys=True)
print()
