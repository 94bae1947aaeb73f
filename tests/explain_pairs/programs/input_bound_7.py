"""Many short rows a batch, which workers make faster than they are needed."""

import numpy as np
import torch
from course import Training
from torch.utils.data import DataLoader

# <- the code


rows, training = [np.ones(64, np.float32)] * 100_000, Training(ms=30)
for batch in DataLoader(rows, batch_size=128, num_workers=2, collate_fn=collate):
    training.step(torch.stack(batch) if isinstance(batch, list) else batch)
