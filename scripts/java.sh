#!/bin/sh
# Print the home of a Java 17 or later; install Debian's if none is there and we may.
# Looks at JAVA_HOME, then at `java` on the PATH. All words go to stderr: stdout is the answer.
# `java.sh --find` never installs, and neither does anything with NO_INSTALL=1 in the environment.
set -eu

# The major version of the java at $1, or nothing.
major() {
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

# Print the home of the java at $1 and succeed, if it is recent enough.
accept() {
    [ -x "$1" ] || return 1
    version=$(major "$1")
    [ "${version:-0}" -ge 17 ] || return 1
    # Through the links, to the folder that holds bin/java.
    dirname "$(dirname "$(readlink -f "$1")")"
}

find_java() {
    if [ -n "${JAVA_HOME:-}" ] && accept "$JAVA_HOME/bin/java"; then return 0; fi
    on_path=$(command -v java) || return 1
    accept "$on_path"
}

PACKAGES="openjdk-17-jre-headless default-jre-headless"

is_root() {
    [ "$(id -u)" -eq 0 ]
}

as_root() {
    if is_root; then "$@"; else sudo -n "$@"; fi
}

# Only an empty value and 0 do not forbid it.
may_install() {
    [ "${NO_INSTALL:-0}" = 0 ] || return 1
    command -v apt-get >/dev/null || return 1
    is_root || sudo -n true 2>/dev/null
}

install_java() {
    if is_root; then whom=root; else whom="root, through sudo"; fi
    echo "no Java 17 or later found: about to install Debian's on this machine, with apt-get as $whom: the first of" \
        "$PACKAGES that there is (NO_INSTALL=1 forbids it)" >&2
    as_root apt-get update -qq >&2 || true
    for package in $PACKAGES; do
        if as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
        then return 0; fi
    done
    return 1
}

if find_java; then exit 0; fi
if [ "${1:-}" != --find ] && may_install && install_java && find_java; then exit 0; fi
if [ "${1:-}" != --find ]; then
    echo "Spark needs Java 17 or later: install one (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to it" >&2
fi
exit 1
