import torch
from torch import nn

torch.manual_seed(7)


class BoxHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, features, size):
        boxes = torch.sigmoid(self.body(features))
        cx, cy, w, h = boxes.unbind(-1)
        cx = cx * size[1]
        cy = cy * size[0]
        return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)


model = BoxHead()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
features, wanted = torch.randn(9, 10), torch.rand(9, 4)
for _ in range(3):
    loss = nn.functional.smooth_l1_loss(model(features, (3.0, 4.0)), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
