"""Steps between a forward and its backward: what every step consumes must stay what the code says."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch

from deinplace.model import Rewrite
from deinplace.rules.base import Incident
from deinplace.rules.step_before_backward import StepBeforeBackward

RULE = StepBeforeBackward()
Make = Callable[[str], Any]

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
disc = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
opt_g = torch.optim.SGD(gen.parameters(), lr=0.1)
opt_d = torch.optim.SGD(disc.parameters(), lr=0.1)
real = torch.randn(8, 2) + 2
noise = torch.randn(8, 2)


def bce(logits, value):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, value))


"""

SHARED = (
    HEAD
    + """
for it in range(3):
    fake = gen(noise)
    logits = disc(fake)  # <- save
    loss_d = bce(disc(real), 1.0) + bce(logits, 0.0)
    loss_g = bce(logits, 1.0)
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    opt_d.step()  # <- write
    opt_g.zero_grad(set_to_none=True)
    loss_g.backward()  # <- backward
    opt_g.step()
"""
)

METHODS = (
    HEAD
    + """
class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG, self.netD = gen, disc
        self.optimizer_G = torch.optim.Adam(self.netG.parameters(), lr=0.01)
        self.optimizer_D = torch.optim.Adam(self.netD.parameters(), lr=0.01)

    def forward(self):
        self.fake = self.netG(noise)
        self.logits = self.netD(self.fake)  # <- save

    def backward_D(self):
        self.loss_D = bce(self.netD(real), 1.0) + bce(self.logits, 0.0)
        self.loss_D.backward(retain_graph=True)

    def backward_G(self):
        self.loss_G = bce(self.logits, 1.0)
        self.loss_G.backward()  # <- backward

    def optimize(self):
        self.forward()
        self.optimizer_D.zero_grad()
        self.backward_D()
        self.optimizer_D.step()  # <- write
        self.optimizer_G.zero_grad()
        self.backward_G()  # <- outer
        self.optimizer_G.step()


gan = Gan()
for _ in range(3):
    gan.optimize()
"""
)

UPDATERS = (
    HEAD
    + """
class Trainer:
    def __init__(self):
        self.G, self.D = gen, disc
        self.opt_g = torch.optim.SGD(self.G.parameters(), lr=0.1)
        self.opt_d = torch.optim.SGD(self.D.parameters(), lr=0.1)

    def update_d(self, loss):
        self.opt_d.zero_grad()
        loss.backward(retain_graph=True)
        self.opt_d.step()  # <- write
        return loss.item()

    def update_g(self, loss):
        self.opt_g.zero_grad()
        loss.backward()  # <- backward
        self.opt_g.step()
        return loss.item()

    def train(self):
        logits = self.D(self.G(noise))  # <- save
        loss_d = bce(self.D(real), 1.0) + bce(logits, 0.0)
        d = self.update_d(loss_d)  # <- first
        g = self.update_g(bce(logits, 1.0))  # <- second
        return d, g


trainer = Trainer()
for _ in range(3):
    trainer.train()
"""
)

GUARDED = SHARED.replace(
    "    opt_d.step()  # <- write\n",
    "    if it % 2 == 0:\n        opt_d.step()  # <- write\n        opt_d.zero_grad()\n",
)
BLOCKS = (
    HEAD
    + """
def train(it, train_d=True, train_g=True):
    logits = disc(gen(noise))  # <- save
    loss_d = bce(disc(real), 1.0) + bce(logits, 0.0)
    loss_g = bce(logits, 1.0)
    if train_d:
        opt_d.zero_grad()
        loss_d.backward(retain_graph=True)
        opt_d.step()  # <- write
    if train_g:
        opt_g.zero_grad()
        loss_g.backward()  # <- backward
        opt_g.step()


for it in range(3):
    train(it, train_g=it != 1)
"""
)
COMMON_ZERO = (
    HEAD
    + """
model = nn.ModuleDict({"gen": gen, "disc": disc})
for it in range(3):
    model.zero_grad()
    logits = disc(gen(noise))  # <- save
    loss_d = bce(disc(real), 1.0) + bce(logits, 0.0)
    loss_g = bce(logits, 1.0)
    loss_d.backward(retain_graph=True)
    opt_d.step()  # <- write
    model.zero_grad()
    loss_g.backward()  # <- backward
    opt_g.step()
"""
)
WRAPPED = SHARED.replace("    loss_g.backward()", "    accelerator.backward(loss_g)").replace(
    "for it in",
    "class Accelerator:\n    def backward(self, loss, **kwargs):\n        loss.backward(**kwargs)\n\n\n"
    "accelerator = Accelerator()\nfor it in",
)
SCALED = (
    HEAD
    + """
scaler = torch.amp.GradScaler("cpu", enabled=False)
for it in range(3):
    logits = disc(gen(noise))  # <- save
    loss_d = bce(disc(real), 1.0) + bce(logits, 0.0)
    loss_g = bce(logits, 1.0)
    opt_d.zero_grad()
    scaler.scale(loss_d).backward(retain_graph=True)
    scaler.step(opt_d)  # <- write
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()  # <- backward
    scaler.step(opt_g)
    scaler.update()
"""
)
CLIPPED = SHARED.replace(
    "    opt_d.step()  # <- write\n",
    "    nn.utils.clip_grad_norm_(disc.parameters(), 0.1)\n    opt_d.step()  # <- write\n"
    "    for p in disc.parameters():\n        p.data.clamp_(-0.2, 0.2)\n",
)
GROUPS = SHARED.replace(
    "opt_g = torch.optim.SGD(gen.parameters(), lr=0.1)",
    'opt_g = torch.optim.SGD([{"params": gen[0].parameters()}, {"params": gen[2].parameters(), "lr": 0.2}], lr=0.1)',
)
FROZEN = SHARED.replace("opt_g = ", "for p in gen[0].parameters():\n    p.requires_grad_(False)\nopt_g = ", 1)
SCHEDULED = SHARED.replace("for it in", "sched_d = torch.optim.lr_scheduler.StepLR(opt_d, 1, 0.5)\nfor it in").replace(
    "    opt_d.step()  # <- write\n", "    opt_d.step()  # <- write\n    sched_d.step()\n"
)
THREE = (
    HEAD
    + """
twin = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
opt_t = torch.optim.SGD(twin.parameters(), lr=0.1)
for it in range(2):
    act = gen(noise)
    q1 = disc(act)  # <- save
    q2 = twin(act)
    loss1, loss2, loss3 = bce(q1, 0.0), bce(q2, 0.0), -torch.min(q1, q2).mean()
    opt_d.zero_grad()
    loss1.backward(retain_graph=True)
    opt_d.step()  # <- write
    opt_t.zero_grad()
    loss2.backward(retain_graph=True)
    opt_t.step()  # <- other
    opt_g.zero_grad()
    loss3.backward()  # <- backward
    opt_g.step()
"""
)

TEMPERATURE = (
    HEAD
    + """
class Agent:
    def __init__(self):
        self.actor, self.critic = gen, disc
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.opt_q = torch.optim.SGD([*self.critic.parameters()], lr=0.1)
        self.opt_alpha = torch.optim.SGD([self.log_alpha], lr=0.1)
        self.opt_pi = torch.optim.SGD(self.actor.parameters(), lr=0.1)

    def learn(self):
        loss_q = bce(self.critic(real), 1.0)
        act = self.actor(noise)
        loss_pi = (self.log_alpha.exp() * act.pow(2)).mean() - self.critic(act).mean()  # <- save
        loss_alpha = (self.log_alpha * act.detach().mean()).mean()
        self.opt_q.zero_grad()
        loss_q.backward()
        self.opt_q.step()  # <- write
        self.opt_alpha.zero_grad()
        loss_alpha.backward()
        self.opt_alpha.step()
        self.opt_pi.zero_grad()
        loss_pi.backward()  # <- backward
        self.opt_pi.step()


agent = Agent()
for _ in range(2):
    agent.learn()
"""
)
HELPER_CLIPS = SHARED.replace(
    "opt_g = torch.optim.SGD(gen.parameters(), lr=0.1)\nopt_d = torch.optim.SGD(disc.parameters(), lr=0.1)\n",
    "opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.1), torch.optim.SGD(disc.parameters(), lr=0.1)\n\n\n"
    'def clip(net, bound):\n    """Clips weights."""\n    with torch.no_grad():\n'
    "        for p in net.parameters():\n            p.clamp_(-bound, bound)\n\n\n",
).replace("    opt_d.step()  # <- write\n", "    opt_d.step()  # <- write\n    clip(disc, 0.2)\n")

FREEZES = (
    METHODS.replace(
        "class Gan(nn.Module):",
        "def set_requires_grad(nets, flag=False):\n    if not isinstance(nets, list):\n        nets = [nets]\n"
        "    for net in nets:\n        for p in net.parameters():\n            p.requires_grad = flag\n\n\n"
        "class Gan(nn.Module):",
    )
    .replace(
        "        self.optimizer_D.step()  # <- write\n",
        "        self.optimizer_D.step()  # <- write\n        set_requires_grad(self.netD, False)\n",
    )
    .replace("        self.forward()\n", "        set_requires_grad([self.netD], True)\n        self.forward()\n")
)


def literal(before: Any, rewrites: list[Rewrite], how: str = "safe") -> Rewrite:
    """The first offered rewrite that runs; it must be the same program as `before` with saved tensors cloned."""
    wanted = before.steps(cloned=True)
    for rewrite in rewrites:
        after = before.apply(rewrite)
        got = after.steps_if_it_runs()
        if got is None:
            continue
        assert rewrite.applicability == how
        torch.testing.assert_close(got_sorted(got), got_sorted(wanted), rtol=0, atol=0)
        return rewrite
    pytest.fail("no rewrite runs: " + "\n".join(r.title for r in rewrites))


def got_sorted(seen: list[list[Any]]) -> list[list[Any]]:
    """Steps of separate optimizers may change places: compare them by what they hold."""
    return sorted(seen, key=lambda s: [str(t) for t in s])


def offered(before: Any, incident: Incident) -> list[Rewrite]:
    site = RULE.claim(incident, before.project)
    assert site is not None
    return list(RULE.rewrites(site, before.project, incident))


@pytest.mark.parametrize(
    ("code", "marks"),
    [
        pytest.param(SHARED, ("save", "write", "backward"), id="script"),
        pytest.param(METHODS, ("save", "write", "backward outer"), id="helper-methods"),
        pytest.param(UPDATERS, ("save", "write first", "backward second"), id="one-updater-a-network"),
        pytest.param(GUARDED, ("save", "write", "backward"), id="step-every-other-round"),
        pytest.param(BLOCKS, ("save", "write", "backward"), id="a-block-a-network"),
        pytest.param(COMMON_ZERO, ("save", "write", "backward"), id="zero-grad-of-both-between"),
        pytest.param(WRAPPED, ("save", "write", "backward"), id="accelerator"),
        pytest.param(SCALED, ("save", "write", "backward"), id="grad-scaler"),
        pytest.param(CLIPPED, ("save", "write", "backward"), id="gradient-and-weight-clipping"),
        pytest.param(GROUPS, ("save", "write", "backward"), id="parameter-groups"),
        pytest.param(FROZEN, ("save", "write", "backward"), id="frozen-layer"),
        pytest.param(SCHEDULED, ("save", "write", "backward"), id="schedule-of-the-delayed-step"),
        pytest.param(TEMPERATURE, ("save", "write", "backward"), id="optimizer-of-one-tensor-between"),
        pytest.param(FREEZES, ("save", "write", "backward outer"), id="a-network-frozen-between"),
        pytest.param(HELPER_CLIPS, ("save", "write", "backward"), id="weights-clipped-by-a-helper"),
    ],
)
def test_each_step_consumes_what_it_did(program: Make, code: str, marks: tuple[str, str, str]) -> None:
    before = program(code)
    assert before.failure().raised.category == "version"
    literal(before, offered(before, before.conflict(*marks)))


def test_two_steps_in_the_way(program: Make) -> None:
    before = program(THREE)
    assert before.failure().raised.category == "version"
    first = offered(before, before.conflict("save", "write", "backward"))[0]
    half = before.apply(first)
    assert half.failure().raised.category == "version"
    rewrite = offered(half, half.conflict("save", "other", "backward"))[0]
    torch.testing.assert_close(
        got_sorted(half.apply(rewrite).steps()), got_sorted(before.steps(cloned=True)), rtol=0, atol=0
    )


def test_the_folk_cure_mixes_gradients(program: Make) -> None:
    """All backward first, then all step: the second loss adds its gradient to the first network's."""
    before = program(SHARED)
    folk = SHARED.replace("    opt_d.step()  # <- write\n", "").replace(
        "    loss_g.backward()  # <- backward\n", "    loss_g.backward()\n    opt_d.step()\n"
    )
    wanted = got_sorted(before.steps(cloned=True))
    mixed = got_sorted(program(folk).steps())
    assert any(not torch.equal(a, b) for x, y in zip(mixed, wanted, strict=True) for a, b in zip(x, y, strict=True))
    literal(before, offered(before, before.conflict("save", "write", "backward")))


def test_limiting_the_backward_is_enough_downstream(program: Make) -> None:
    code = HEAD + textwrap.dedent("""
        for it in range(2):
            z = gen(noise)  # <- save
            score = disc(z)
            opt_g.zero_grad()
            (z.pow(2).mean() + score.mean()).backward(retain_graph=True)
            opt_g.step()  # <- write
            other = disc(gen(noise).detach())
            loss = bce(score, 0.0) + bce(other, 1.0)
            opt_d.zero_grad()
            loss.backward()  # <- backward
            opt_d.step()
    """)
    before = program(code)
    assert before.failure().raised.category == "version"
    rewrites = offered(before, before.conflict("save", "write", "backward"))
    rewrite = literal(before, rewrites[:1])
    assert len(rewrite.edits) == 1
    assert len(rewrites) == 1, "the step may not pass a forward that sees the new weights"


def test_one_optimizer_twice_is_a_choice(program: Make) -> None:
    code = HEAD + textwrap.dedent("""
        opt = torch.optim.SGD(disc.parameters(), lr=0.1)
        out = disc(real)  # <- save
        opt.zero_grad()
        out.mean().backward(retain_graph=True)
        opt.step()  # <- write
        out.pow(2).mean().backward()  # <- backward
        opt.step()
    """)
    before = program(code)
    incident = before.conflict("save", "write", "backward")
    (rewrite,) = offered(before, incident)
    assert rewrite.applicability == "unsafe"
    assert "steps once" in rewrite.note
    assert len(before.apply(rewrite).steps()) == 2
    site = RULE.claim(incident, before.project)
    assert "new forward after the first step" in RULE.advice(site, before.project, incident)


def test_recomputing_the_forward_is_unsafe_and_says_why(program: Make) -> None:
    code = HEAD + textwrap.dedent("""
        def apply_loss(optim, loss):
            optim.zero_grad()
            loss.backward()  # <- backward
            optim.step()  # <- write


        def objective():
            return -disc(gen(noise)).mean()  # <- inner


        def learn():
            q_loss = bce(disc(real), 1.0)
            policy_loss = objective()  # <- save
            apply_loss(opt_d, q_loss)  # <- one
            apply_loss(opt_g, policy_loss)  # <- two


        learn()
    """)
    before = program(code)
    assert before.failure().raised.category == "version"
    incident = before.conflict("inner save", "write one", "backward two")
    rewrites = offered(before, incident)
    rewrite = rewrites[-1]
    assert rewrite.applicability == "unsafe"
    assert "weights after the step" in rewrite.note
    assert "apply_loss(opt_d, q_loss)  # <- one\n    policy_loss = objective()" in before.apply(rewrite).code
    assert len(before.apply(rewrite).steps()) == 4
    site = RULE.claim(incident, before.project)
    advice = RULE.advice(site, before.project, incident)
    assert f":{before.place('write').span.line} " in advice
    assert f":{before.place('backward').span.line} " in advice


def test_a_graph_from_before_the_loop_is_to_be_detached(program: Make) -> None:
    code = HEAD + textwrap.dedent("""
        old = disc(real)  # <- save
        for epoch in range(2):
            loss = (disc(real) - old).pow(2).mean() + old.mean()
            opt_d.zero_grad()
            loss.backward(retain_graph=True)  # <- backward
            opt_d.step()  # <- write
    """)
    before = program(code)
    assert before.failure().raised.category == "version"
    incident = before.conflict("save", "write", "backward")
    site = RULE.claim(incident, before.project)
    assert site is not None
    advice = RULE.advice(site, before.project, incident)
    assert f"line {before.place('save').span.line} computed once" in advice
    assert ".detach()" in advice


def test_no_zero_grad_makes_it_unsafe(program: Make) -> None:
    """Without it the gradients that the limited backward no longer leaves would be consumed in the next round."""
    before = program(SHARED.replace("    opt_d.zero_grad()\n", ""))
    rewrites = offered(before, before.conflict("save", "write", "backward"))
    assert rewrites
    assert all(r.applicability == "unsafe" for r in rewrites)


def test_static_find(program: Make) -> None:
    assert [s.span.line for s in RULE.find(program(SHARED).source)] == [program(SHARED).place("write").span.line]


@pytest.mark.parametrize("write", ["p.data.clamp_(-0.1, 0.1)", "p.mul_(0.9)"])
def test_weights_written_by_hand_are_named(program: Make, write: str) -> None:
    code = HEAD + textwrap.dedent(f"""
        logits = disc(gen(noise))  # <- save
        with torch.no_grad():
            for p in disc.parameters():
                {write}  # <- write
        bce(logits, 1.0).backward()  # <- backward
    """)
    before = program(code)
    incident = before.conflict("save", "write", "backward", optimizer=None)
    site = RULE.claim(incident, before.project)
    assert site is not None
    assert list(RULE.rewrites(site, before.project, incident)) == []
    advice = RULE.advice(site, before.project, incident)
    assert f":{before.place('write').span.line} writes `p`" in advice
    assert f":{before.place('backward').span.line} has run" in advice
    hidden = "data" in write
    if hidden:
        before.run()
        exact = program(code.replace(f"        {write}", "        pass"))
        exact.run()
        grads = [[p.grad for p in run.globals["gen"].parameters()] for run in (before, exact)]
        assert not all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    else:
        assert before.failure().raised.category == "version"


AVERAGE = (
    HEAD
    + """
teacher = copy.deepcopy(gen)
opt = torch.optim.SGD(gen.parameters(), lr=0.1)


class Averager:
    def __init__(self):
        self.teacher, self.student = teacher, gen

    @torch.no_grad()
    def update(self, rate=0.9):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.mul_(rate).add_(s + 0.1, alpha=1 - rate)  # <- write

    def round(self):
        target = self.teacher(noise)  # <- save
        loss = (self.student(noise) - target).pow(2).mean() + target.mean()
        self.update()  # <- moved
        opt.zero_grad()
        {between}
        loss.backward()  # <- backward
        opt.step()


averager = Averager()
for _ in range(3):
    averager.round()
"""
)
AVERAGE = AVERAGE.replace("import torch\n", "import copy\nimport torch\n", 1)


def test_an_average_moves_behind_the_backward_that_needs_the_old_weights(program: Make) -> None:
    before = program(AVERAGE.format(between="print(loss.item())"))
    incident = before.conflict("save", "write moved", "backward", optimizer=None)
    rewrite = literal(before, offered(before, incident))
    assert "self.update()" in before.apply(rewrite).code.split("loss.backward()")[1]


@pytest.mark.parametrize(
    "between",
    [
        "self.teacher(noise)",
        "print(self.teacher)",
        "target = self.student(noise)",
        "self.round()",
        "evaluate(self)",
        "opt.step()",
    ],
)
def test_what_may_see_the_average_keeps_it_where_it_is(program: Make, between: str) -> None:
    before = program(AVERAGE.format(between=between))
    incident = before.conflict("save", "write moved", "backward", optimizer=None)
    assert offered(before, incident) == []
