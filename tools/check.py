#!/usr/bin/env python3
"""Runs every check, also after one has failed, and prints what each cost. This is `make check`.

Usage: check.py [--build FOLDER] [--tidy-budget SECONDS]
"""

import argparse
import os
import subprocess
import sys
import time

import checklib

TOOLS = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=os.path.join(checklib.ROOT, "build", "release"))
    parser.add_argument("--tidy-budget", type=int, default=150)
    options = parser.parse_args()
    steps = [
        ("checks", ["checks_test.py"]),
        ("layers", ["check_layers.py"]),
        ("sizes", ["check_sizes.py"]),
        ("parameters", ["check_parameters.py"]),
        ("words", ["check_words.py"]),
        ("links", ["check_links.py"]),
        ("format", ["format.py"]),
        ("isa", ["check_isa.py", options.build]),
        ("tidy", ["tidy.py", "--build", options.build, "--budget", str(options.tidy_budget)]),
    ]
    failed, times = [], []
    for name, words in steps:
        start = time.monotonic()
        code = subprocess.run([sys.executable, os.path.join(TOOLS, words[0]), *words[1:]], check=False).returncode
        times.append(f"{name} {time.monotonic() - start:.1f} s")
        if code:
            failed.append(name)
    print("check: " + (", ".join(failed) + " failed" if failed else "all ok") + " (" + ", ".join(times) + ")")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
