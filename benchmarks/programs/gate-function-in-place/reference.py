import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(11)


class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels // 2, 1)
        self.expand = nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x):
        s = F.elu(self.squeeze(x.mean((2, 3), keepdim=True)))
        s = torch.sigmoid(self.expand(s))
        weight = s * x.amax((2, 3), keepdim=True)
        s = F.threshold(s, 0.1, 0.0)
        return x * s + weight


model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), Gate(8),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
x, y = torch.randn(6, 3, 12, 12), torch.randint(5, (6,))
for _ in range(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
