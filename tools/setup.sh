#!/usr/bin/env bash
# Prepares a fresh Debian 12: packages of apt-packages.txt, Node for the oracle tests, the pre-commit hook.
# Usage: ./tools/setup.sh [--no-hooks]    as root, or as a user with sudo; safe to run again.
# Without Node or the oracle packages it warns; with LATHE_CI=1, as in the gate, it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

hooks=1
for word in "$@"; do
  case "$word" in
    --no-hooks) hooks=0 ;;
    *) echo "setup: unknown option '$word'; there is only --no-hooks" >&2; exit 2 ;;
  esac
done

as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'; }

# Installs those of the named packages that are missing.
install_packages() {
  local missing=() name
  for name in "$@"; do installed "$name" || missing+=("$name"); done
  if [ ${#missing[@]} = 0 ]; then return 0; fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

mapfile -t packages < <(sed 's/#.*//' apt-packages.txt | tr -s ' \t' '\n' | grep .)
install_packages "${packages[@]}"

# Node 20 or newer drives the oracles. Debian's is older, so the npm package that carries the program goes into tools/node_modules.
node_ok() { local major; major=$("$1" --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/') && [ "${major:-0}" -ge 20 ]; }
setup_node() {
  if ! node_ok node && ! node_ok tools/node_modules/.bin/node; then
    install_packages nodejs npm || return 1
    npm install --prefix tools --no-save --no-package-lock --no-fund --no-audit node@22 || return 1
  fi
  command -v npm >/dev/null || install_packages npm || return 1
  # shellcheck source=/dev/null
  . tools/node_path.sh
  if [ ! -f tests/oracle/node_modules/.package-lock.json ] || [ tests/oracle/package-lock.json -nt tests/oracle/node_modules/.package-lock.json ]; then
    echo "setup: oracle packages"
    npm ci --prefix tests/oracle --no-fund --no-audit || return 1
    touch tests/oracle/node_modules/.package-lock.json
  fi
}
if [ -f tests/oracle/package-lock.json ] && ! setup_node; then
  if [ "${LATHE_CI:-}" = 1 ]; then
    echo "setup: there is no Node 20 or there are no oracle packages, the gate must not pass without the tests that need them" >&2
    exit 1
  fi
  echo "setup: WARNING: no Node 20 or no oracle packages; the tests that need them will say that they were skipped" >&2
fi

if [ "$hooks" = 1 ] && git rev-parse --git-dir >/dev/null 2>&1; then git config core.hooksPath .githooks; fi
echo "setup: ready; next: make"
