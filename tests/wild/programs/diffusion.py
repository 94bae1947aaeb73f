"""diffusers' UNet and noise scheduler in an own loop: samples are drawn with the model after each step."""
# expects: side_work
# package: diffusers

import torch
from diffusers import DDPMScheduler, UNet2DModel
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def preview(net, noise_schedule):
    image = torch.randn(1, 1, 16, 16)
    for t in noise_schedule.timesteps[:8]:
        noise = net(image, t).sample  # <- cause
        image = noise_schedule.step(noise, t, image).prev_sample  # <- cause
    return image


def main():
    torch.set_num_threads(1)
    clock = Clock()
    net = UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"), norm_num_groups=4,
    )  # fmt: skip
    noise_schedule = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    images = TensorDataset(torch.rand(5000, 1, 16, 16))
    while True:
        for (image,) in DataLoader(images, batch_size=8, shuffle=True):
            noise = torch.randn_like(image)
            t = torch.randint(0, 100, (len(image),))
            loss = nn.functional.mse_loss(net(noise_schedule.add_noise(image, noise, t), t).sample, noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if PLANTED:
                preview(net, noise_schedule)
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
