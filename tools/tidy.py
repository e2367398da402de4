#!/usr/bin/env python3
"""Runs clang-tidy 19 on the translation units that changed since they were last found clean.

Clean results are kept in build/tidy/clean.json under a hash of the unit, every project header it reaches, its flags and .clang-tidy, so
nothing is tidied twice. Without a budget all remaining units run (`make tidy-all`). With one (`make check`), they run, latest change
first, until it is spent, and how many were left is printed.

Usage: tidy.py [--budget SECONDS] [--jobs N] [--build FOLDER] [FILE …]
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time

import check_layers
import checklib

CACHE = os.path.join(checklib.ROOT, "build", "tidy", "clean.json")
COMMITS = 50
# clang reports libstdc++ 12's own use of a deprecated function in std::stable_sort.
LIBRARY = ["--extra-arg=-Wno-deprecated-declarations"]


def commands(build):
    """{source path: (folder, words)} from the compilation database."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        path = os.path.relpath(entry["file"], checklib.ROOT)
        found.setdefault(path, entry.get("arguments") or shlex.split(entry["command"]))
    return found


def reached(tree, path):
    """The unit and every project header that it includes, directly or not."""
    seen, queue = {path}, [path]
    while queue:
        for _, _, target in tree.includes.get(queue.pop(), ()):
            if target and target not in seen:
                seen.add(target)
                queue.append(target)
    return seen


def unit_hash(tree, path, words, config):
    digest = hashlib.sha256(config)
    digest.update("\0".join(word for word in words if not word.startswith("-o")).encode())
    for file in sorted(reached(tree, path)):
        digest.update(file.encode() + b"\0" + tree.texts.get(file, "").encode() + b"\0")
    return digest.hexdigest()


def recently_changed():
    """{file: age} for files of the working tree (age 0) and of the last commits (1 = newest)."""
    ages = {}

    def lines(*words):
        out = subprocess.run(["git", *words], cwd=checklib.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return out.stdout.splitlines()

    for path in lines("diff", "--name-only", "HEAD"):
        ages[path] = 0
    age = 0
    for line in lines("log", f"-{COMMITS}", "--name-only", "--format=tformat:commit"):
        if line == "commit":
            age += 1
        elif line:
            ages.setdefault(line, age)
    return ages


def plan(tree, database, clean, config, only):
    """Units to run as (age, path, hash): age None means that they did not change lately. Also the number of clean ones."""
    ages = recently_changed()
    todo, done = [], 0
    for path, words in sorted(database.items()):
        if path not in tree.texts or not path.endswith(".cc") or (only and path not in only):
            continue
        key = unit_hash(tree, path, words, config)
        if clean.get(path) == key:
            done += 1
            continue
        # A header counts as changed in the unit of its own name, so that one edit of base/result.h does not pull in the whole tree.
        files = [path, path[:-3] + ".h", path.replace("_test.cc", ".h")]
        age = min((ages[file] for file in files if file in ages), default=None)
        todo.append((age, path, key))
    return sorted(todo, key=lambda item: (item[0] is None, item[0] or 0, item[1])), done


def run_one(build, path, deadline):
    if deadline and time.monotonic() > deadline:
        return None, ""
    words = ["clang-tidy-19", "-p", build, "--quiet", "--extra-arg=-Wno-unknown-warning-option", *LIBRARY, path]
    done = subprocess.run(words, cwd=checklib.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return done.returncode == 0, done.stdout + "\n".join(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--budget", type=float, default=0, help="seconds; 0: no limit")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--build", default=os.path.join(checklib.ROOT, "build", "release"))
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    try:
        database = commands(options.build)
    except OSError:
        print(f"tidy: {options.build} is no build folder; run `make` first")
        sys.exit(1)
    with open(os.path.join(checklib.ROOT, ".clang-tidy"), "rb") as file:
        config = file.read()
    try:
        with open(CACHE, encoding="utf-8") as file:
            clean = json.load(file)
    except (OSError, ValueError):
        clean = {}
    tree = check_layers.Tree(checklib.ROOT)
    todo, done = plan(tree, database, clean, config, set(options.files))
    deadline = time.monotonic() + options.budget if options.budget else None
    problems, ran, left = 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (_, path, key), (ok, text) in zip(todo, pool.map(lambda item: run_one(options.build, item[1], deadline), todo)):
            if ok is None:
                left += 1
                continue
            ran += 1
            if ok:
                clean[path] = key
            else:
                problems += 1
                print(text.strip() or f"{path}: clang-tidy failed")
    os.makedirs(os.path.dirname(CACHE), exist_ok=True)
    with open(CACHE, "w", encoding="utf-8") as file:
        json.dump(clean, file, indent=0, sort_keys=True)
    rest = f", {left} left for `make tidy-all`" if left else ""
    print(f"tidy: {'ok' if not problems else str(problems) + ' unit(s) with findings'}, {ran} run, {done} known clean{rest}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
