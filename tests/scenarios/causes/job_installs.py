"""A job is one script: it installs packages, which takes a compiler's time, and then starts the training."""
# category: long installation
# expects: goodput/program

import argparse
import subprocess
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    program = str(Path(__file__).with_name("pip_first.py"))
    busy = "import sys, time; end = time.time() + float(sys.argv[1])\nwhile time.time() < end: sum(range(999))"
    subprocess.check_call([sys.executable, "-c", busy, str(0.2 if args.fixed else args.seconds / 2)])
    subprocess.check_call([sys.executable, program, f"--seconds={args.seconds}", "--fixed"])


if __name__ == "__main__":
    main()
