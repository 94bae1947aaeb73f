"""The loss of every step is posted to a service; fixed: the mean of 500 steps."""
# category: calls to outside
# expects: side_work/network

import requests
from elsewhere import http_server
from plain import train
from until import options


class Progress:
    def __init__(self, address, every):
        self.session, self.url = requests.Session(), "http://{}:{}/runs/7".format(*address)
        self.losses, self.every = [], every

    def log(self, number, loss, model):
        self.losses.append(loss.item())
        if len(self.losses) == self.every:
            self.session.post(self.url, json={"loss": sum(self.losses) / self.every})  # <- cause
            self.losses.clear()


def main():
    args = options()
    train(args.seconds, Progress(http_server(0.01), 500 if args.fixed else 1).log)


if __name__ == "__main__":
    main()
