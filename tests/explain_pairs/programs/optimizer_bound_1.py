"""An optimizer that is written by hand."""

import torch
from course import Computing, is_over

torch.set_num_threads(1)
# <- the code
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), Computing(256, 12))
optimizer = RowNormalised(model.parameters(), {})
while not is_over():
    loss = model(torch.rand(64, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
