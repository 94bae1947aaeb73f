"""Make docs/tuimon.svg: a screenshot of the app while it watches demo/slow_loader.py.

.venv/bin/python docs/make_screenshot.py
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tuimon.monitor.opening.options import Options
from tuimon.monitor.opening.run import open_run
from tuimon.views.tui.screenshot import screenshot

ROOT = Path(__file__).resolve().parent.parent
#: As often as the app ticks.
TICK_S = 0.5


def main() -> int:
    """Watch the demo, save the screenshot, end the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", default=str(ROOT / "docs" / "tuimon.svg"), help="default: %(default)s")
    parser.add_argument(
        "--after", type=float, default=40.0, help="seconds to watch before the screenshot (default %(default)s)"
    )
    parser.add_argument("--size", default="120x40", help="columns x rows (default %(default)s)")
    parser.add_argument("--theme", choices=["dark", "light"], default="dark")
    args = parser.parse_args()
    columns, rows = (int(part) for part in args.size.split("x"))
    script = [str(ROOT / "demo" / "slow_loader.py"), "--workers", "2", "--seconds", str(args.after + 60)]
    monitor = open_run([sys.executable, *script], Options())
    monitor.start()
    try:
        due_s = time.monotonic()
        until_s = due_s + args.after
        while due_s < until_s and not monitor.ended:
            monitor.tick()
            due_s += TICK_S
            time.sleep(max(due_s - time.monotonic(), 0))
        screenshot(monitor, args.output, size=(columns, rows), theme=args.theme, title="tuimon run demo/slow_loader.py")
        print(args.output)
        monitor.begin_end()
        while not monitor.ended:
            monitor.tick()
            time.sleep(0.1)
    finally:
        monitor.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
