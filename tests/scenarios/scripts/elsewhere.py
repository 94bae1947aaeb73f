"""A machine elsewhere: a server, which takes its time to answer. As a program, this file is that server."""

import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ROW = bytes(1024)


def http_server(seconds):
    """The address of one that gives 1 kB, and takes whatever is sent, after so long."""
    return _started("http", seconds)


def line_server(seconds):
    """The address of one that gives 1 kB for each line, after so long."""
    return _started("lines", seconds)


def _started(kind, seconds):
    words = [sys.executable, __file__, kind, str(seconds)]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return "127.0.0.1", int(server.stdout.readline())


class _OverHttp(BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(float(sys.argv[2]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_ROW)))
        self.end_headers()
        self.wfile.write(_ROW)

    do_POST = do_PUT = do_GET

    def log_message(self, *_):
        pass


class _OverLines(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            time.sleep(float(sys.argv[2]))
            self.wfile.write(_ROW)


def main():
    """Serve until the program that started it has ended."""
    if sys.argv[1] == "http":
        server = ThreadingHTTPServer(("127.0.0.1", 0), _OverHttp)
    else:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OverLines)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
