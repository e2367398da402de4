"""Evaluation rows and the recorded results: subsets of the sets, and the comparison of a report with data/eval/eval.json."""

import json
import os
import subprocess

RECALL_ROWS = 2  # of each recall set up to 8k tokens
HELDOUT_ROWS = 6
EVERY = 20


def is_recall(name):
    return name.startswith("recall_")


def pick(name, count):
    """Numbers of the rows that the short run takes."""
    if name == "heldout":
        return list(range(HELDOUT_ROWS))
    if is_recall(name):
        return list(range(RECALL_ROWS)) if not name.startswith("recall_32768") else []
    return list(range(0, count, EVERY))


def write_subset(source, target):
    """Copies the picked rows of every set to the folder `target`. Returns {set: row numbers}."""
    with open(os.path.join(source, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    picked = {}
    for name in index["sets"]:
        with open(os.path.join(source, name + ".jsonl"), encoding="utf-8") as file:
            lines = file.readlines()
        picked[name] = pick(name, len(lines))
        with open(os.path.join(target, name + ".jsonl"), "w", encoding="utf-8") as file:
            file.writelines(lines[number] for number in picked[name])
    for name in [name for name, numbers in picked.items() if not numbers]:
        del index["sets"][name], picked[name]
    with open(os.path.join(target, "index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file)
    os.symlink(os.path.abspath(os.path.join(source, "images")), os.path.join(target, "images"))
    return picked


def evaluate(lathe, dtype, sets):
    """The report of `lathe eval`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LATHE_")}
    done = subprocess.run([lathe, "eval", "--sets", sets, "--dtype", dtype, "--json"], capture_output=True, check=False, env=environment)
    if done.returncode:
        raise AssertionError(f"lathe eval: exit code {done.returncode}: {done.stderr.decode(errors='replace')}")
    return json.loads(done.stdout)


def turned_rows(report, recorded, picked=None):
    """Rows that are right in one of report and record only, as (set, row), and how many were compared. A row that rounding can turn is left out."""
    turned, compared = [], 0
    for name, score in report["sets"].items():
        could = set(recorded["could_turn_rows"].get(name, []))
        for at, right in zip(score["row_numbers"], score["rows"]):
            number = picked[name][at] if picked else at
            if number in could:
                continue
            compared += 1
            if right != recorded["rows_fp8"][name][number]:
                turned.append((name, number))
    return turned, compared
