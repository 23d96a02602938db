"""Trains the U-Net on synthetic discs."""

import torch
from torch.nn import functional as F

from unet import UNet


def discs(count, size, generator):
    """Noisy images of one disc each, and the masks of the discs."""
    grid = torch.arange(size) - size / 2
    centre = torch.randn(count, 2, 1, 1, generator=generator) * size / 8
    inside = (grid.view(1, -1, 1) - centre[:, 0]) ** 2 + (grid.view(1, 1, -1) - centre[:, 1]) ** 2 < (size / 4) ** 2
    masks = inside.float().unsqueeze(1)
    return masks + 0.3 * torch.randn(masks.shape, generator=generator), masks


def main(steps=5):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    net = UNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        images, masks = discs(4, 32, generator)
        loss = F.binary_cross_entropy_with_logits(net(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
