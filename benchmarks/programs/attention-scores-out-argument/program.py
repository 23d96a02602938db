import torch
from torch import nn

torch.manual_seed(3)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        torch.add(scores, self.bias, out=scores)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


model = nn.Sequential(Attention(16, 4), nn.Flatten(), nn.Linear(16 * 6, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x, y = torch.randn(8, 6, 16), torch.randint(3, (8,))
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
