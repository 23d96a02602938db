import torch
from torch import nn

torch.manual_seed(5)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 12)
        self.head = nn.Linear(12, 2)

    def forward(self, chunk, state):
        for t in range(chunk.shape[1]):
            state = self.cell(chunk[:, t], state)
        return self.head(state), state


model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stream = torch.randn(5, 12, 4)
labels = torch.randint(2, (3, 5))
state = torch.zeros(5, 12)
for step, chunk in enumerate(stream.chunk(3, dim=1)):
    out, state = model(chunk, state)
    loss = nn.functional.cross_entropy(out, labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = state.detach()
    print(loss.item())
