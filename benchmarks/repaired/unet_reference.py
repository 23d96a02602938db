"""A residual U-Net whose blocks add the shortcut in place to an activation's output."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        residual = self.skip(x)
        x = self.act(self.norm(self.first(x)))
        x = nn.functional.relu(self.second(x))
        return x + residual


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down, self.bottom, self.up = Block(3, width), Block(width, 2 * width), Block(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.bottom(nn.functional.max_pool2d(a, 2))
        return self.head(self.up(torch.cat([nn.functional.interpolate(b, scale_factor=2), a], 1)))


torch.manual_seed(0)
net = UNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
images, masks = torch.randn(4, 3, 64, 64), torch.rand(4, 1, 64, 64)


def step():
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(net(images), masks).backward()
    optimizer.step()


if __name__ == "__main__":
    step()
