"""Type evidence: ty and pyrefly, asked as subprocesses over a shadow of the project; nothing of it is run."""

from deinplace.typing_evidence.checkers import CHECKERS
from deinplace.typing_evidence.evidence import INSTALL, Answer, Answers, TypeEvidence, ask
from deinplace.typing_evidence.questions import Question, of_candidate

__all__ = ["CHECKERS", "INSTALL", "Answer", "Answers", "Question", "TypeEvidence", "ask", "of_candidate"]
