# shellcheck shell=sh disable=SC2154,SC3013 # $self is the caller's; dash and bash both have -nt
# What the scripts beside this one share. They source it with $self, their own real path, and it says
# where the environment is and whether it is ready; scripts/setup makes it when it is not.
#
# This runs before every command, so it starts no process when there is nothing to do. An environment is
# ready when its stamp names this checkout (else it was moved or copied) and has the very time of
# pyproject.toml, not merely a later one: clocks jump, and git writes old files with new times.

root=${self%/*/*}
venv=$root/.venv
pycache=

# The programs that we need, each with the Debian and Ubuntu package that brings it.
# shellcheck disable=SC2034 # the scripts choose among these
{
    sandbox='bwrap:bubblewrap'
    clients='ip:iproute2 nft:nftables musl-gcc:musl-tools nc:netcat-openbsd tinyproxy:tinyproxy-bin tmux:tmux curl:curl wget:wget git:git ssh:openssh-client sshd:openssh-server openssl:openssl socat:socat
             dig:bind9-dnsutils kdig:knot-dnsutils node:nodejs npm:npm javac:default-jdk-headless
             gcc:g++ chromium:chromium strace:strace gdb:gdb
             podman:podman runc:runc newuidmap:uidmap busybox:busybox-static' # g++ brings the C headers, which gcc alone leaves out
    linters='shellcheck:shellcheck'
}

say() {
    printf 'egress: %s\n' "$*" >&2
}

# has NEEDS: are all these programs here? Leaves the packages of those that are not in $lacking.
has() {
    lacking=
    for need in $1; do
        # an ordinary user's PATH leaves out where Debian keeps nft and sshd
        PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null || lacking="$lacking ${need#*:}"
    done
    [ -z "$lacking" ]
}

# ready KIND: is there a finished environment for this checkout, to run (run) or to work on it (dev)?
ready() {
    finished "$1" && return
    if [ -e "$venv" ]; then [ -w "$venv" ]; else [ -w "$root" ]; fi && return 1
    # This checkout is not ours to write to: the environment and the bytecode go to the cache.
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/egress/venv-$(printf %s "$root" | sha256sum | cut -c 1-16)
    pycache=$venv/pycache
    finished "$1"
}

finished() {
    stamp=$venv/.ready-$1
    [ -x "$venv/bin/python" ] && [ -r "$stamp" ] && read -r made_for <"$stamp" && [ "$made_for" = "$root" ] &&
        ! [ "$stamp" -nt "$root/pyproject.toml" ] && ! [ "$stamp" -ot "$root/pyproject.toml" ]
}

# set_up KIND NEEDS [optional]: after `ready` and `has` said no, make it so; one set-up at a time.
set_up() {
    mkdir -p "$venv" || exit 125
    flock -n "$venv" true || say 'waiting for another set-up to finish …'
    # -o: a daemon that a package starts must not inherit the lock
    flock -o "$venv" "$root/scripts/setup" "$venv" "$@" >&2 || exit 125
}

# start MODULE ARG…: become that command. -I keeps the working directory, which an agent may write to,
# off the import path. -S and -c are the fastest way in: what `site` would do is one line here, and the
# script that pip would write imports more than the launcher does.
start() {
    module=$1
    shift
    exec "$venv/bin/python" -I -S ${pycache:+-X "pycache_prefix=$pycache"} -c "import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
root, venv = sys.argv[1:3]
libraries = '/python%d.%d/site-packages' % sys.version_info[:2]
sys.path += [root, venv + '/lib' + libraries, venv + '/lib64' + libraries]
sys.argv[:3] = ['${self##*/}']
from $module import main
sys.exit(main())" "$root" "$venv" "$@"
}
