"""The loss of every step is posted to a service; fixed: the mean of 500 steps."""
# category: calls to outside
# expects: side_work/network

import requests
import torch
import torch.nn.functional as F
from elsewhere import http_server
from until import options, small_model, steps


class Progress:
    def __init__(self, address):
        self.session, self.url = requests.Session(), "http://{}:{}/runs/7".format(*address)

    def log(self, losses):
        self.session.post(self.url, json={"loss": sum(losses) / len(losses)})  # <- cause


def main():
    args = options()
    progress, losses = Progress(http_server(0.01)), []
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == (500 if args.fixed else 1):
            progress.log(losses)
            losses.clear()


if __name__ == "__main__":
    main()
