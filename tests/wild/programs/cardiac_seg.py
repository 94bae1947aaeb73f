"""Trains a U-Net on cardiac slices with Dice and boundary loss; planted: each batch's distance maps are made anew."""

# expects: input_bound/hand_rolled_loader
# package: torch
import numpy as np
import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from scipy.ndimage import distance_transform_edt
from torch import nn

CLASSES, SIZE, BATCH = 4, 96, 4


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.enc1 = conv_block(width, width)
        self.enc2 = conv_block(width, 2 * width)
        self.enc3 = conv_block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = conv_block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = conv_block(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        a = self.enc1(self.stem(x))
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.enc3(F.max_pool2d(b, 2))
        d = self.dec2(torch.cat([self.up2(c), b], dim=1))
        e = self.dec1(torch.cat([self.up1(d), a], dim=1))
        return F.interpolate(self.head(e), scale_factor=2, mode="bilinear", align_corners=False)


def make_slices(count, rng):
    """Phantom short-axis slices: two concentric discs and a crescent."""
    yy, xx = np.mgrid[:SIZE, :SIZE]
    masks = np.zeros((count, SIZE, SIZE), np.int64)
    for mask in masks:
        cy, cx = rng.uniform(0.4, 0.6, 2) * SIZE
        radius = rng.uniform(0.1, 0.16) * SIZE
        distance = np.hypot((yy - cy) * rng.uniform(0.85, 1.15), xx - cx)
        mask[np.hypot(yy - cy, xx - cx + 2.1 * radius) < 1.5 * radius] = 3
        mask[distance < 1.6 * radius] = 2
        mask[distance < radius] = 1
    levels = np.array([0.1, 0.9, 0.4, 0.8])[masks] + rng.normal(0, 0.15, masks.shape)
    return levels[:, None].astype(np.float32), masks


def signed_distance(masks):
    """For each class how far each pixel is from its boundary, negative inside."""
    onehot = np.stack([masks == c for c in range(CLASSES)], axis=1)
    out = np.zeros(onehot.shape, np.float32)
    for b in range(len(masks)):
        for c in range(CLASSES):
            inside = onehot[b, c]
            if inside.any():
                out[b, c] = distance_transform_edt(~inside) - (distance_transform_edt(inside) - 1) * inside  # <- cause
    return out


def dice_loss(prob, target):
    onehot = F.one_hot(target, CLASSES).permute(0, 3, 1, 2).float()
    overlap = (prob * onehot).sum((2, 3))
    return 1 - ((2 * overlap + 1) / (prob.sum((2, 3)) + onehot.sum((2, 3)) + 1)).mean()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    images, masks = make_slices(160, rng)
    distances = None if PLANTED else signed_distance(masks)
    net = UNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    alpha = 0.01
    running, clock = True, Clock()
    while running:
        for rows in rng.permutation(len(images)).reshape(-1, BATCH):
            x, y = torch.from_numpy(images[rows]), torch.from_numpy(masks[rows])
            distance = torch.from_numpy(signed_distance(masks[rows]) if PLANTED else distances[rows])
            prob = net(x).softmax(dim=1)
            loss = (1 - alpha) * dice_loss(prob, y) + alpha * (prob * distance).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running = clock.step()
            if not running:
                break
        alpha = min(alpha + 0.01, 0.5)
    clock.tell()


if __name__ == "__main__":
    main()
