"""After the last step all results are sent to another machine, file by file, while the GPU waits."""
# category: uploads
# expects: goodput/network

import http.client

from elsewhere import http_server
from plain import train
from until import options


def upload(address, files):
    connection = http.client.HTTPConnection(*address)
    for number in range(files):
        connection.request("PUT", f"/results/{number}", bytes(4096))
        connection.getresponse().read()


def main():
    args = options()
    address = http_server(0.5)
    train(args.seconds / 2)
    upload(address, 1 if args.fixed else int(args.seconds))


if __name__ == "__main__":
    main()
