"""Scores a request without a server and prints the answer."""
import json
import sys

import torch

model, request = sys.argv[1:]
with open(request) as f:
    rows = torch.tensor(json.load(f)["data"])
with torch.no_grad():
    sure = torch.jit.load(model + "/network.pt")(rows)
print("plain " + json.dumps({"cultivar": sure.argmax(1).tolist(), "sure": sure.tolist()}))
