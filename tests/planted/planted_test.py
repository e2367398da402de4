"""The self-test of a build with planted faults: each fault is caught by its own row, and without one all rows pass.

Usage: planted_test.py LATHE [FAULT ROW]
"""

import json
import os
import subprocess
import sys


def main():
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LATHE_")}
    fault, row = sys.argv[2:] or (None, None)
    if fault:
        environment["LATHE_PLANT"] = fault
    done = subprocess.run([sys.argv[1], "selftest", "--json"], capture_output=True, check=False, env=environment)
    if done.returncode != (1 if fault else 0):
        sys.exit(f"exit code {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}")
    passed = {r["name"]: r["passed"] for r in json.loads(done.stdout)["rows"]}
    print(fault or "no fault", passed)
    if fault and passed.get(row) is not False:
        sys.exit(f"the row '{row}' did not catch {fault}")
    if not fault and not all(passed.values()):
        sys.exit("a row failed without a planted fault")


if __name__ == "__main__":
    main()
