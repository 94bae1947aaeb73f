"""Every hundredth step the weights are sent to object storage; fixed: when the training is over."""
# category: uploads
# expects: side_work/network

import io
import urllib.request

import torch
from elsewhere import http_server
from plain import train
from until import options


def upload(model, address):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    request = urllib.request.Request(f"{address}/weights.pt", data=file.getvalue(), method="PUT")
    urllib.request.urlopen(request).read()  # <- cause


def main():
    args = options()
    address = "http://{}:{}".format(*http_server(0.8))

    def after(number, loss, model):
        if number % 100 == 99 and not args.fixed:
            upload(model, address)

    train(args.seconds, after)


if __name__ == "__main__":
    main()
