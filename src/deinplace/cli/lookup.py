"""Finds the pages that speak of a few words that a person typed, in English or Chinese, rather than an error's text."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from deinplace.cli.messages import MEANINGS

_SHOWN = 3
_ENOUGH = 0.5
"""So much of what was typed, weighed by how telling each word is, has to stand on a page."""
_IDLE = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can cannot do does error errors exception fix for from get getting got have "
        "help how i if in is it issue me my not of on or problem python pytorch runtimeerror runtime solve solved "
        "that the there this to torch train training using what when while why with working work please",
    )
)
# what people type in Chinese, by the English word that the pages have for it
_CHINESE = {
    "原地": "inplace", "就地": "inplace", "叶子": "leaf", "叶节点": "leaf", "反向传播": "backward", "反传": "backward",
    "第二次": "second time", "两次": "twice", "二次": "second time", "梯度": "gradient", "视图": "view",
    "版本": "version", "修改": "modified", "覆盖": "overwritten", "对抗": "gan", "生成器": "generator",
    "判别器": "discriminator",
    "优化器": "optimizer", "计算图": "graph", "克隆": "clone", "激活": "activation", "切片": "slice", "索引": "index",
    "赋值": "assignment", "参数": "parameter", "初始化": "initialize", "权重": "weight", "隐藏状态": "hidden state",
    "钩子": "hook", "循环": "loop", "强化学习": "reinforcement", "静默": "silent", "广播": "broadcast",
}  # fmt: skip
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_WORD = re.compile(r"[a-z0-9.+*/=]+")


@dataclass(frozen=True)
class Page:
    """A page that can be found: what to type for it, its headline, and its words."""

    ask: str
    title: str
    head: Counter[str]
    body: Counter[str]


def pages() -> tuple[Page, ...]:
    """Every page there is: those of the rules, and those of the errors."""
    from deinplace.rules import all_rules

    found = []
    for rule in all_rules():
        doc = type(rule).__doc__ or ""
        title, what = doc.strip().splitlines()[0], doc.partition("## Why")[0]
        found.append(Page(rule.name, title, words(f"{rule.name} {what}"), words(_FENCED.sub("", doc))))
    for each in MEANINGS:
        head = words(f"{each.title} {each.words} {each.says}")
        found.append(Page(each.key, each.title, head, words(f"{each.why} {each.do}")))
    return tuple(found)


def words(text: str) -> Counter[str]:
    """The words of a text that tell something: lower case, without plurals, Chinese ones in English."""
    plain = text.casefold()
    for chinese, english in _CHINESE.items():
        plain = plain.replace(chinese, f" {english} ")
    plain = re.sub(r"\bin[\s-]?place\b", "inplace", plain)
    found = []
    for word in _WORD.findall(plain.replace("-", " ").replace("_", " ")):
        bare = word.strip(".")
        if bare not in _IDLE and (len(bare) > 1 or bare == "="):
            found.append(bare[:-1] if len(bare) > 3 and bare.endswith("s") and not bare.endswith("ss") else bare)
    return Counter(found)


def lookup(text: str) -> tuple[Page, ...]:
    """The pages that speak of most of what was typed, the best first; none where no page does."""
    known = pages()
    asked = words(text)
    seen = Counter(word for page in known for word in {*page.head, *page.body})
    weight = {word: math.log(1 + len(known) / (1 + seen[word])) for word in asked}
    whole = sum(weight.values())
    if not whole:
        return ()
    scored = []
    for page in known:
        held = sum(weight[word] for word in asked if word in page.head or word in page.body)
        headed = sum(weight[word] for word in asked if word in page.head)
        if (headed and held / whole >= _ENOUGH) or (held == whole and len(asked) > 1):
            scored.append((held + headed, page))
    scored.sort(key=lambda pair: -pair[0])
    best = scored[0][0] if scored else 0.0
    return tuple(page for score, page in scored[:_SHOWN] if score >= 0.6 * best)
