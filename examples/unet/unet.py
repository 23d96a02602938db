"""A small U-Net with residual blocks, for two-class segmentation."""

import torch
from torch import nn
from torch.nn import functional as F


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
        x = F.relu(self.second(x))
        x += residual
        return x


class UNet(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.down1 = Block(1, channels)
        self.down2 = Block(channels, 2 * channels)
        self.bottom = Block(2 * channels, 2 * channels)
        self.up2 = Block(4 * channels, channels)
        self.up1 = Block(2 * channels, channels)
        self.head = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        d = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], dim=1))
        e = self.up1(torch.cat([F.interpolate(d, scale_factor=2), a], dim=1))
        return self.head(e)
