"""Type evidence: ty and pyrefly, asked as subprocesses over a shadow of the project; nothing of it is run."""

from deinplace.typing_evidence.evidence import Answer, Answers, Mode, TypeEvidence, ask
from deinplace.typing_evidence.questions import Question, of_candidate

__all__ = ["Answer", "Answers", "Mode", "Question", "TypeEvidence", "ask", "of_candidate"]
