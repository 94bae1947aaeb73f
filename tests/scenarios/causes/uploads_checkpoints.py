"""Every hundredth step the weights are sent to object storage; fixed: when the training is over."""
# category: uploads
# expects: side_work/network

import io
import urllib.request

import torch
import torch.nn.functional as F
from elsewhere import http_server
from until import options, small_model, steps


def upload(model, address):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    request = urllib.request.Request(f"{address}/weights.pt", data=file.getvalue(), method="PUT")
    urllib.request.urlopen(request).read()  # <- cause


def main():
    args = options()
    address = "http://{}:{}".format(*http_server(0.8))
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 100 == 99 and not args.fixed:
            upload(model, address)


if __name__ == "__main__":
    main()
