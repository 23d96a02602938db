"""What a rule is, and what it may look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from deinplace.analysis.source import Source
from deinplace.model import Conflict, Raised, Rewrite, Site


@dataclass(frozen=True)
class Project:
    """The files a rewrite may change, by absolute path, and others that it may only read."""

    sources: Mapping[str, Source]
    read_only: Mapping[str, Source] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """Settings files (JSON, YAML, TOML) beside the program, by absolute path: advice may name their lines."""

    def get(self, path: str) -> Source | None:
        """The file at `path`, editable or not."""
        return self.sources.get(path) or self.read_only.get(path)

    def editable(self, path: str) -> bool:
        """True where a rewrite may change the file."""
        return path in self.sources


@dataclass(frozen=True)
class Incident:
    """What a run showed: one conflict, or one error raised at once."""

    conflict: Conflict | None = None
    raised: Raised | None = None


@dataclass(frozen=True)
class Case:
    """A program snippet that belongs to a rule: `after` None means that the rule stays silent on it."""

    id: str
    before: str
    after: str | None = None


class Rule(ABC):
    """One kind of in-place write. The class docstring is its page: What it does / Why is this bad / Example /
    Use instead / Fix safety / References."""

    code: ClassVar[str]
    name: ClassVar[str]
    cases: ClassVar[tuple[Case, ...]] = ()
    fallback: ClassVar[bool] = False
    """True where a rule offers its rewrites for any conflict, after those of all others."""
    owns: ClassVar[frozenset[str]] = frozenset()
    """Categories of errors raised at once that are this rule's alone once it claims them: intent decides there."""
    reorders: ClassVar[bool] = False
    """True where a rewrite moves backward calls and steps: what each step consumes is compared, not their order."""
    changes_gradients: ClassVar[bool] = False
    """True where a rewrite changes gradients on purpose: it can run to the end, but not equal the original."""

    @abstractmethod
    def find(self, source: Source) -> Iterable[Site]:
        """Sites in a file that look like this rule's, whatever the type of their target."""

    def claim(self, incident: Incident, project: Project) -> Site | None:
        """The site that an incident points at, if it is one of this rule's."""
        return None

    @abstractmethod
    def rewrites(self, site: Site, project: Project, incident: Incident | None = None) -> Iterable[Rewrite]:
        """Candidate rewrites for a site, the cheapest first."""

    def advice(self, site: Site, project: Project, incident: Incident | None = None) -> str:
        """What to do by hand where no rewrite holds."""
        return ""
