"""Writes the pages of the documentation that are made from the program: rules, errors, configuration, the JSON report.

usage: python scripts/docs_pages.py
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from deinplace.cli.messages import MEANINGS, Meaning
from deinplace.rules import all_rules
from deinplace.rules.base import Case, Rule

DOCS = Path(__file__).resolve().parents[1] / "docs"
README = DOCS.parent / "README.md"
MADE = "<!-- made by scripts/docs_pages.py: do not edit -->\n\n"
TABLE = re.compile(r"(<!-- rules -->\n).*?(<!-- /rules -->)", re.DOTALL)
Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """Every page that is made, by its path in docs/."""
    made = {f"rules/{rule.name}.md": rule_page(rule) for rule in all_rules()}
    made |= {"rules/index.md": rules_index(), "errors.md": errors_page()}
    made |= {"configuration.md": configuration_page(), "report.md": report_page()}
    return {path: MADE + text for path, text in made.items()}


def rules_table(folder: str) -> str:
    """Code, name and headline of every rule, with links into `folder`."""
    rows = [
        f"| {rule.code} | [{rule.name}]({folder}{rule.name}.md) | {headline(rule)} |" for rule in all_rules()
    ]  # fmt: skip
    return "\n".join(["| code | name | what it finds |", "|---|---|---|", *rows]) + "\n"


def readme() -> str:
    """The README with its table of rules as the rules are."""
    return TABLE.sub(lambda found: found[1] + rules_table("docs/rules/") + found[2], README.read_text("utf-8"))


def headline(rule: Rule) -> str:
    """The first sentence of a rule's page."""
    return _doc(rule).splitlines()[0]


def _doc(rule: Rule) -> str:
    return inspect.cleandoc(type(rule).__doc__ or "")


def rule_page(rule: Rule) -> str:
    """What `deinplace explain` prints, and the rule's own cases."""
    text = re.sub(r"^- (https://\S+)$", r"- <\1>", _doc(rule), flags=re.MULTILINE)
    parts = [f"# {rule.name} ({rule.code})\n\n{text}\n"]
    changed = [case for case in rule.cases if case.after is not None]
    kept = [case for case in rule.cases if case.after is None]
    if rule.cases:
        parts.append("## Cases\n\nThey stand beside the rule, and are run as its tests.\n")
    parts += [f'??? example "rewritten: {case.id}"\n\n{_indented(_fence("diff", _diff(case)))}\n' for case in changed]
    parts += [f'??? example "left alone: {case.id}"\n\n{_indented(_fence("python", case.before))}\n' for case in kept]
    return "\n".join(parts)


def rules_index() -> str:
    """The list of rules, and how to choose among them."""
    return (
        "# Rules\n\n"
        f"{rules_table('')}\n"
        "DIP1xx are writes by their form, DIP2xx faults of a whole program. `--select`, `--ignore`, `--fixable` and "
        "`--unfixable` take codes, the first letters of codes, or names; `deinplace explain NAME` prints a page. "
        "DIP000 is a fault that no rule has a rewrite for. DIP900 is a comment that names no rule, DIP901 one that "
        "silences nothing.\n"
    )


def errors_page() -> str:
    """A section for each of PyTorch's in-place errors."""
    head = (
        "# PyTorch's in-place errors\n\n"
        '`deinplace explain "..."` finds the section that a pasted error belongs to. `deinplace run train.py` '
        "finds the lines.\n"
    )
    return "\n".join([head, *map(_error, MEANINGS)])


def _error(meaning: Meaning) -> str:
    says = meaning.says if meaning.pattern else meaning.says.strip("()")
    shown = f"> `{says}`\n" if meaning.pattern else f"*{says[0].upper()}{says[1:]}.*\n"
    rules = ", ".join(f"[{name}](rules/{name}.md)" for name in meaning.rules)
    return "\n".join([
        f"## {meaning.headline} {{ #{meaning.key} }}\n",
        shown,
        f"**Why.** {meaning.why}\n",
        f"**What to do.** {meaning.do}\n",
        *([f"Rules: {rules}\n"] if rules else []),
    ])  # fmt: skip


def configuration_page() -> str:
    """Every setting, from the schema."""
    schema = json.loads(files("deinplace").joinpath("settings.schema.json").read_text("utf-8"))
    rows = []
    for key, held in schema["properties"].items():
        default = f"`{_toml(held['default'])}`" if "default" in held else "not set"
        rows.append(f"## {key} {{ #{key} }}\n\n{held['description']}\n\n- takes: {_kind(held)}\n- default: {default}\n")
    return DOCS.joinpath("configuration.in.md").read_text("utf-8") + "\n" + "\n".join(rows)


def report_page() -> str:
    """The JSON report, from its schema."""
    schema = json.loads(files("deinplace.report").joinpath("report.schema.json").read_text("utf-8"))
    head = (
        f"# The JSON report\n\n{schema['description']} `schema_version` counts up when something is taken out or "
        "changes its meaning; new fields may come at any time.\n"
    )
    parts = [
        head,
        "```console\n$ deinplace check . --output-format json --output-file report.json\n```\n",
        _fields("The report", schema),
        *(_fields(name, held) for name, held in schema["$defs"].items()),
        "## The schema itself\n",
        _fence("json", json.dumps(schema, indent=1)),
    ]
    return "\n".join(parts)


def _fields(name: str, held: Schema) -> str:
    rows = ["| field | holds | |", "|---|---|---|"]
    for key, value in held.get("properties", {}).items():
        rows.append(f"| `{key}` | {_kind(value)} | {value.get('description', '')} |")
    said = f"{held['description']}\n\n" if "description" in held and name != "The report" else ""
    return f"## {name} {{ #{name.lower().replace(' ', '-')} }}\n\n{said}" + "\n".join(rows) + "\n"


def _kind(held: Schema) -> str:
    """What a field takes, in words."""
    if "$ref" in held:
        name = held["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "const" in held:
        return f"`{json.dumps(held['const'])}`"
    if "enum" in held:
        return ", ".join(f"`{json.dumps(value)}`" for value in held["enum"])
    if "anyOf" in held:
        return " or ".join(_kind(each) for each in held["anyOf"])
    if isinstance(held.get("type"), list):
        return " or ".join(held["type"])
    if held.get("type") == "array":
        return f"a list of {_kind(held['items'])}" if "items" in held else "a list"
    if held.get("type") == "object" and "properties" in held:
        return ", ".join(f"`{key}`: {_kind(value)}" for key, value in held["properties"].items())
    if held.get("type") == "object" and isinstance(held.get("additionalProperties"), dict):
        return f"a table, each value {_kind(held['additionalProperties'])}"
    return str(held.get("type", "anything"))


def _toml(value: Any) -> str:
    return "{}" if value == {} else json.dumps(value, ensure_ascii=False)


def _diff(case: Case) -> str:
    lines = difflib.unified_diff(case.before.splitlines(), (case.after or "").splitlines(), n=99, lineterm="")
    return "\n".join([line for line in lines if not line.startswith(("---", "+++", "@@"))])


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.rstrip().split("\n"))


def main() -> None:
    """Write the pages, and the README's table."""
    for path, text in pages().items():
        target = DOCS / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    README.write_text(readme(), "utf-8")


if __name__ == "__main__":
    main()
