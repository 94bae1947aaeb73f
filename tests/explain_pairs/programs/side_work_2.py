"""A service in a process of its own, which answers after 10 ms."""

import http.client
import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from course import Training
from torch.utils.data import DataLoader, TensorDataset


class Tracker(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.01)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Tracker)
multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
training = Training()
loader = DataLoader(TensorDataset(torch.randn(100_000, 64), torch.randn(100_000, 1)), batch_size=16)


def train_step(x, y):
    training.step(x)
    return 0.5


def send(losses):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("POST", "/losses", json.dumps(losses))
    connection.getresponse().read()
    connection.close()


# <- the code
