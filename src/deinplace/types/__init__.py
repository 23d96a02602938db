"""Type evidence: ty and pyrefly, asked as subprocesses over a shadow of the project; nothing of it is run."""

from deinplace.types.evidence import Answer, Answers, Mode, TypeEvidence, ask
from deinplace.types.questions import Question, everywhere

__all__ = ["Answer", "Answers", "Mode", "Question", "TypeEvidence", "ask", "everywhere"]
