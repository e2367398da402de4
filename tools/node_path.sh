# Sourced: puts the Node that tools/setup.sh fetched before an older one of the system.
if [ -x "$PWD/tools/node_modules/.bin/node" ]; then
  export PATH="$PWD/tools/node_modules/.bin:$PATH"
fi
