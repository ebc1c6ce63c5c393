"""Trains a small network on a CSV whose last column is the class, the same each time, and saves it as TorchScript."""
import csv
import pathlib
import sys

import torch

data, out = sys.argv[1:]
with open(data, newline="") as f:
    _, *rows = csv.reader(f)
x = torch.tensor([[float(cell) for cell in row[:-1]] for row in rows])
y = torch.tensor([int(row[-1]) for row in rows])


class Network(torch.nn.Module):
    """Two layers, which have what they are given in units of its spread."""

    def __init__(self, mean, spread):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)
        self.layers = torch.nn.Sequential(torch.nn.Linear(len(mean), 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

    def forward(self, rows):
        return torch.softmax(self.layers((rows - self.mean) / self.spread), dim=1)


torch.manual_seed(7)
torch.set_num_threads(1)
net = Network(x.mean(0), x.std(0))
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.nll_loss(torch.log(net(x)), y)
    loss.backward()
    optimizer.step()
right = (net(x).argmax(1) == y).float().mean().item()
print(f"torch {torch.__version__}: loss {loss.item():.4f}, {right:.1%} of {len(x)} right", flush=True)
if right < 0.95:
    sys.exit("the network has not learned")
pathlib.Path(out).mkdir(parents=True, exist_ok=True)
torch.jit.script(net).save(str(pathlib.Path(out, "network.pt")))
