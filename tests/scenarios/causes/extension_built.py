"""An extension in C++ is built anew at each start, before the training."""
# category: long installation
# expects: goodput/program

import os
import tempfile

from plain import train
from until import options

SOURCE = "#include <{}>\n#include <regex>\nint main() {{ return 0; }}\n"


def build(files):
    folder = tempfile.mkdtemp()
    for number in range(files):
        path = os.path.join(folder, f"part{number}.cpp")
        with open(path, "w") as file:
            file.write(SOURCE.format("bits/stdc++.h"))
        os.system(f"c++ -O3 -c {path} -o {path}.o")


def main():
    args = options()
    build(0 if args.fixed else 5)
    train(args.seconds / 2)


if __name__ == "__main__":
    main()
