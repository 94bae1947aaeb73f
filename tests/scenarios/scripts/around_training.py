"""Nothing is wrong in the training: the program waits before it, after it, or between two steps."""

import code
import http.client
import os
import pdb
import subprocess
import sys
import tempfile

from elsewhere import http_server
from laps import options, train

SOURCE = "#include <{}>\n#include <regex>\nint main() {{ return 0; }}\n"


# program: asks_each_epoch
# category: interactive
# expects: goodput/prompt
def asks_each_epoch(args):
    """After each epoch the program asks whether to go on, and somebody answers two seconds later."""
    somebody = Somebody()
    train(args.seconds, lambda number, *_: number % 50 == 49 and not args.fixed and not somebody.agrees())


class Somebody:
    def __init__(self):
        words = ["sh", "-c", "while read asked; do sleep 2; echo y; done"]
        self.there = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.dup2(self.there.stdout.fileno(), 0)

    def agrees(self):
        self.there.stdin.write(b"?\n")
        self.there.stdin.flush()
        return input("go on? ") == "y"


# program: breakpoint_in_loop
# category: interactive
# expects: goodput/prompt
def breakpoint_in_loop(args):
    """A breakpoint has stayed in the loop; somebody comes after some seconds and types c."""

    def after(number, loss, model):
        if number == 200 and not args.fixed:
            words = ["sh", "-c", f"sleep {args.seconds / 2}; echo c"]
            typed = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            with open(os.devnull, "w") as screen:
                pdb.Pdb(stdin=typed.stdout, stdout=screen).set_trace()

    train(args.seconds, after)


# program: console_before_training
# category: interactive
# expects: goodput/prompt
def console_before_training(args):
    """A console is opened on the data before the training, and is left after some seconds."""
    if not args.fixed:
        typed = subprocess.Popen(["sh", "-c", f"sleep {args.seconds / 2}"], stdout=subprocess.PIPE)
        os.dup2(typed.stdout.fileno(), 0)
        code.interact(banner="", exitmsg="", local={"data": list(range(4))})
    train(args.seconds / 2)


# program: extension_built
# category: long installation
# expects: goodput/program
def extension_built(args):
    """An extension in C++ is built anew at each start, before the training."""
    build(0 if args.fixed else 5)
    train(args.seconds / 2)


def build(files):
    folder = tempfile.mkdtemp()
    for number in range(files):
        path = os.path.join(folder, f"part{number}.cpp")
        with open(path, "w") as file:
            file.write(SOURCE.format("bits/stdc++.h"))
        os.system(f"c++ -O3 -c {path} -o {path}.o")


# program: pip_first
# category: long installation
# expects: goodput/program
def pip_first(args):
    """The program installs what it needs before it trains."""
    if not args.fixed:
        run_another(args.seconds / 2)
    train(args.seconds / 2)


# program: uploads_by_program
# category: uploads
# expects: goodput/program
def uploads_by_program(args):
    """A copying program, as rclone is one, is started after the training and waited for."""
    train(args.seconds / 2)
    run_another(0.2 if args.fixed else args.seconds / 2)


def run_another(seconds):
    subprocess.check_call([sys.executable, "-c", f"import time; time.sleep({seconds})"])


# program: uploads_at_end
# category: uploads
# expects: goodput/network
def uploads_at_end(args):
    """After the last step all results are sent to another machine, file by file, while the GPU waits."""
    address = http_server(0.5)
    train(args.seconds / 2)
    upload(address, 1 if args.fixed else int(args.seconds))


def upload(address, files):
    connection = http.client.HTTPConnection(*address)
    for number in range(files):
        connection.request("PUT", f"/results/{number}", bytes(4096))
        connection.getresponse().read()


if __name__ == "__main__":
    args = options()
    globals()[args.program](args)
