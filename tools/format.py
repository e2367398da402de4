#!/usr/bin/env python3
"""Checks the layout of tracked sources with clang-format 19; `--fix` rewrites them. Usage: format.py [--fix] [FILE …]"""

import subprocess
import sys

import checklib


def main():
    fix = "--fix" in sys.argv
    named = [word for word in sys.argv[1:] if not word.startswith("--")]
    files = [p for p in checklib.code_files() if not p.endswith(".inc") and not checklib.is_generated(checklib.read(p)) and (not named or p in named)]
    if not files:
        checklib.finish("format", [], "0 files")
    words = ["-i"] if fix else ["--dry-run", "-Werror"]
    done = subprocess.run(["clang-format-19", *words, *files], cwd=checklib.ROOT, stderr=subprocess.PIPE, text=True, check=False)
    places = [line for line in done.stderr.splitlines() if "error:" in line]
    problems = sorted({line.partition(":")[0] + ": not formatted; run `make fix`" for line in places})
    if done.returncode and not problems:
        problems = [done.stderr.strip() or "clang-format-19 failed"]
    checklib.finish("format", problems, f"{len(files)} files")


if __name__ == "__main__":
    main()
