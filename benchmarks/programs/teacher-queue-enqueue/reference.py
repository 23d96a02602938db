import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)


class Contrast(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.encode = nn.Linear(12, dim)
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.size, self.at = size, 0

    def forward(self, a, b):
        q, k = F.normalize(self.encode(a), dim=1), F.normalize(self.encode(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone()
        with torch.no_grad():
            self.queue[:, self.at : self.at + len(k)] = k.t()
            self.at = (self.at + len(k)) % self.size
        return torch.cat([positive, negative], 1) / 0.2


model = Contrast(8, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
a, b = torch.randn(4, 12), torch.randn(4, 12)
for _ in range(3):
    logits = model(a, b)
    loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
