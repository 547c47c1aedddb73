"""Writes the API reference from signatures and docstrings, a Markdown page a module: `python tools/reference.py FOLDER`.

It reads the source and imports nothing, so that adapters are in it without their frameworks. A public object without a docstring
ends it with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

PACKAGE = Path(__file__).resolve().parents[1] / "src"
MODULES = [
    "handoffd",
    "handoffd.errors",
    "handoffd.webhooks",
    "handoffd.sw4rm",
    *(
        f"handoffd.adapters{name}"
        for name in ("", *(f".{path.stem}" for path in sorted((PACKAGE / "handoffd/adapters").glob("[a-z]*.py"))))
    ),
    "handoffd._sync.services",
]
"""Pages. Data models (`handoffd.models`) are the OpenAPI document's."""


def main() -> int:
    """Writes all pages; 1 where something public says nothing."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    package = griffe.load("handoffd", search_paths=[str(PACKAGE)], docstring_parser="google", resolve_aliases=True)
    silent: list[str] = []
    index = ["# handoffd, Python\n"]
    for name in MODULES:
        module = package if name == "handoffd" else package[name.removeprefix("handoffd.")]
        title = name.replace("._sync.", ".")
        (out / f"{title}.md").write_text("\n".join(_page(title, module, silent)))
        index.append(f"- [{title}]({title}.md): {_first(module)}")
    (out / "index.md").write_text("\n".join(index) + "\n")
    for path in silent:
        print(f"no docstring: {path}", file=sys.stderr)
    print(f"{len(MODULES)} pages in {out}")
    return 1 if silent else 0


def _page(title: str, module: griffe.Module, silent: list[str]) -> Iterator[str]:
    yield f"# {title}\n\n{_text(module)}\n"
    names = (
        [str(one) for one in module.exports] if module.exports else [name for name in module.members if not name.startswith("_")]
    )
    for name in sorted(names):
        member = module.members.get(name)
        if member is None or (member.is_alias and not (module.exports and _is_ours(member))):
            continue
        thing = member.final_target if member.is_alias else member
        if thing.is_module:
            continue
        yield from _entry(thing, name, "##", silent)


def _entry(thing: griffe.Object, name: str, level: str, silent: list[str]) -> Iterator[str]:
    if thing.docstring is None and not (thing.is_attribute and thing.parent is not None and thing.parent.is_module):
        silent.append(thing.path)
    yield f"{level} {name}\n\n```python\n{_signature(thing, name)}\n```\n\n{_text(thing)}\n"
    if not thing.is_class:
        return
    for inner in thing.all_members.values():
        if inner.name.startswith("_") or (inner.is_alias and not _is_ours(inner)):
            continue
        own = inner.final_target if inner.is_alias else inner
        if own.docstring is not None or own.is_function:
            yield from _entry(own, f"{name}.{own.name}", level + "#", silent)


def _is_ours(alias: griffe.Alias) -> bool:
    try:
        return alias.final_target.path.startswith("handoffd.")
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return False


def _signature(thing: griffe.Object, name: str) -> str:
    if thing.is_function:
        function = "async def" if "async" in thing.labels else "def"
        return f"{function} {name}({_parameters(thing.parameters)}) -> {thing.returns or 'None'}"  # type: ignore[attr-defined]
    if thing.is_class:
        bases = ", ".join(str(base) for base in thing.bases)  # type: ignore[attr-defined]
        return f"class {name}({bases})" if bases else f"class {name}"
    annotation = getattr(thing, "annotation", None)
    return f"{name}: {annotation}" if annotation else name


def _parameters(parameters: griffe.Parameters) -> str:
    said: list[str] = []
    keyword_only = False
    for one in parameters:
        if one.name == "self" or one.name == "cls":
            continue
        if one.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            keyword_only = True
            said.append("*")
        star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(one.kind, "")
        keyword_only = keyword_only or star == "*"
        default = "" if one.default is None or star else f" = {one.default}"
        said.append(f"{star}{one.name}" + (f": {one.annotation}" if one.annotation else "") + default)
    return ", ".join(said)


def _text(thing: griffe.Object) -> str:
    return thing.docstring.value if thing.docstring else ""


def _first(thing: griffe.Object) -> str:
    return _text(thing).split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(main())
