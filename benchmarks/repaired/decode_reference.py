"""A detection head that decodes boxes by writing into slices of a sigmoid's output."""

import torch
from torch import nn

torch.manual_seed(0)
head = nn.Conv2d(32, 8, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
features = torch.randn(8, 32, 80, 80)
grid = torch.stack(torch.meshgrid(torch.arange(80.0), torch.arange(80.0), indexing="ij"), -1)


def decode(raw):
    y = raw.permute(0, 2, 3, 1).sigmoid()
    centre = (y[..., 0:2] * 2 - 0.5 + grid) * 8
    size = (y[..., 2:4] * 2) ** 2
    return torch.cat([centre, size, y[..., 4:]], -1)


def step():
    optimizer.zero_grad()
    decode(head(features)).square().mean().backward()
    optimizer.step()


if __name__ == "__main__":
    step()
