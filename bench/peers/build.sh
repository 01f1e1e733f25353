#!/usr/bin/env bash
# Builds the allocators that hakmem is measured against, as shared libraries to preload.
#
#   bench/peers/build.sh [OUTDIR [PEER]...]        (default: build/peers, all peers)
#
# Sources come from crates pinned by version and checksum in pins.txt; tcmalloc and tbbmalloc are
# Debian's or Ubuntu's own libraries. All others are compiled with the same class of flags: -O3 -DNDEBUG, position
# independent, initial-exec TLS, exported names limited to what the project itself exports.
# Whatever a project's own release build sets beyond that (which functions are overridden, how
# threads are cleaned up) is kept; its tuning options are left at their defaults.
#
# OUTDIR/versions.json says for each library what it was made from, how, and its SHA-256. Where
# peers are named, it keeps what it says of the others that are in OUTDIR.
# Environment: CC, CXX (default gcc, g++), CARGO (default cargo).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/build/peers}
shift $(($# > 0))
compiled="mimalloc2 mimalloc3 snmalloc jemalloc rpmalloc"
peers="$compiled tcmalloc tbbmalloc"
wanted=${*:-$peers}
mkdir -p "$out/logs"
out=$(cd "$out" && pwd)

cc=${CC:-gcc}
cxx=${CXX:-g++}
cargo=${CARGO:-cargo}
common="-O3 -DNDEBUG -fPIC -ftls-model=initial-exec -pthread"
sources=$out/sources
records=$out/records
failed=()

die()
{
    echo "build.sh: $*" >&2
    exit 1
}

# among WORD WORD...: whether the first word is one of the others.
among()
{
    local word=$1 other
    shift
    for other in "$@"; do
        [ "$word" != "$other" ] || return 0
    done
    return 1
}

crates=0
for peer in $wanted; do
    among "$peer" $peers || die "no peer called $peer; there are: $peers"
    if among "$peer" $compiled; then crates=1; fi
done
tools="$cc $cxx sha256sum"
[ $crates -eq 0 ] || tools="$tools $cargo make"
for tool in $tools; do
    command -v "$tool" > /dev/null || die "$tool is needed and was not found"
done

# crate_version NAME: its version as pinned in pins.txt.
crate_version()
{
    sed -n "s/^$1 \([^ ]*\) .*/\1/p" "$here/pins.txt"
}

# Refuses sources that are not, to the byte, those that were pinned.
check_pins()
{
    local name version sum
    while read -r name version sum; do
        case $name in '' | '#'*) continue ;; esac
        grep -q "\"package\":\"$sum\"" "$sources/$name/.cargo-checksum.json" ||
            die "$name $version is not the one pinned in pins.txt"
    done < "$here/pins.txt"
}

# record NAME VERSION SOURCE FLAGS: one entry of versions.json. No value holds a quote or backslash.
record()
{
    local sum
    sum=$(sha256sum < "$out/$1.so" | cut -d' ' -f1)
    {
        printf '  {"name": "%s", "version": "%s", "source": "%s", ' "$1" "$2" "$3"
        printf '"flags": "%s", "compiler": "%s", "sha256": "%s"}' "$4" "$5" "$sum"
    } > "$records/$1"
}

# build NAME FUNCTION: runs FUNCTION with its output in a log; a failure is remembered, not fatal,
# so that one report names every peer that is missing.
build()
{
    local name=$1
    rm -f "$out/$name.so" "$records/$name"
    printf '%-10s ' "$name"
    # Not "if build_x": inside a condition, set -e would be off in the function.
    set +e
    (set -e; "build_$name") > "$out/logs/$name.log" 2>&1
    local status=$?
    set -e
    if [ $status -eq 0 ] && [ -e "$out/$name.so" ] && serves "$name"; then
        echo "ok"
    else
        echo "FAILED (see $out/logs/$name.log)"
        failed+=("$name")
    fi
}

# A library that does not export malloc, or can't be preloaded, is no peer.
serves()
{
    LD_PRELOAD=$out/$1.so "$out/probe" "$out/$1.so" >> "$out/logs/$1.log" 2>&1
}

cc_name=$($cc --version | head -1) || die "$cc does not run"
cxx_name=$($cxx --version | head -1) || die "$cxx does not run"

mimalloc()
{
    local name=$1 generation=$2 number
    local tree=$sources/libmimalloc-sys/c_src/mimalloc/$generation
    local flags="$common -fvisibility=hidden -fno-builtin-malloc -DMI_SHARED_LIB
        -DMI_SHARED_LIB_EXPORT -DMI_MALLOC_OVERRIDE=1 -DMI_BUILD_RELEASE"
    flags=$(echo $flags)
    $cc $flags -shared -I"$tree/include" -I"$tree/src" "$tree/src/static.c" -o "$out/$name.so"
    number=$(sed -n 's/^#define MI_MALLOC_VERSION  *\([0-9]*\).*/\1/p' "$tree/include/mimalloc.h")
    record "$name" "$((number / 10000)).$((number / 100 % 100)).$((number % 100))" \
        "libmimalloc-sys $(crate_version libmimalloc-sys), $generation" "$flags" "$cc_name"
}

build_mimalloc2()
{
    mimalloc mimalloc2 v2
}

build_mimalloc3()
{
    mimalloc mimalloc3 v3
}

build_snmalloc()
{
    local tree=$sources/snmalloc-sys/upstream/src
    # The project's own settings for its preload library, as its CMake file works them out on
    # Linux with glibc.
    local flags="$common -std=c++20 -mcx16 -mprfchw -fomit-frame-pointer -ffunction-sections
        -fvisibility=hidden -static-libstdc++ -DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT
        -DSNMALLOC_USE_WAIT_ON_ADDRESS=1 -DSNMALLOC_HAS_LINUX_FUTEX_H -DSNMALLOC_HAS_LINUX_RANDOM_H
        -DSNMALLOC_PLATFORM_HAS_GETENTROPY -DSNMALLOC_NO_REALLOCARRAY -DSNMALLOC_NO_REALLOCARR
        -DSNMALLOC_CHECK_LOADS=false -DSNMALLOC_PAGEID=false"
    flags=$(echo $flags)
    $cxx $flags -DSNMALLOC_EXPORT='__attribute__((visibility("default")))' -shared -I"$tree" \
        "$tree/snmalloc/override/malloc.cc" "$tree/snmalloc/override/new.cc" -latomic \
        -o "$out/snmalloc.so"
    record snmalloc "$(crate_version snmalloc-sys)" "snmalloc-sys $(crate_version snmalloc-sys)" \
        "$flags" "$cxx_name"
}

build_jemalloc()
{
    local pinned version tree=$out/work/jemalloc
    local flags="-O3 -funroll-loops -DNDEBUG -fPIC -pthread"
    pinned=$(crate_version tikv-jemalloc-sys)
    version=${pinned#*+}
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -a "$sources/tikv-jemalloc-sys/jemalloc/." "$tree/"
    cp "$sources/tikv-jemalloc-sys/configure/configure" "$tree/"
    cd "$tree"
    # configure is generated already: nothing may be newer than it.
    find . -exec touch -r configure {} +
    CC=$cc CXX=$cxx CFLAGS="-O3 -funroll-loops -DNDEBUG" CXXFLAGS="-O3 -funroll-loops -DNDEBUG" \
        sh ./configure --with-version="$version" --enable-cxx --disable-doc --disable-static
    make build_lib_shared
    cp -L lib/libjemalloc.so.2 "$out/jemalloc.so"
    record jemalloc "${version%%-*}" "tikv-jemalloc-sys ${pinned%%+*}" \
        "$flags, configure --enable-cxx (initial-exec TLS is its default)" "$cc_name"
}

build_rpmalloc()
{
    local pinned release tree=$sources/rpmalloc-sys/rpmalloc
    local flags="$common -std=gnu11 -fno-builtin -fvisibility=hidden -D_GNU_SOURCE
        -DENABLE_OVERRIDE=1 -DENABLE_PRELOAD=1"
    flags=$(echo $flags)
    pinned=$(crate_version rpmalloc-sys)
    $cc $flags -shared -I"$tree/rpmalloc" "$tree/rpmalloc/rpmalloc.c" -ldl -o "$out/rpmalloc.so"
    # The crate pins a commit of the development branch: the version is that of the last release in
    # its change log, and the commit.
    release=$(sed -n '1s/[^0-9.]//gp' "$tree/CHANGELOG")
    record rpmalloc "$release+${pinned#*+}" "rpmalloc-sys ${pinned%%+*}" "$flags" "$cc_name"
}

# distributed LIBRARY: where the distribution has it.
distributed()
{
    # Not every user has the folder of ldconfig in the path.
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p |
        awk -v name="$1" '$1 == name && !found { print $NF; found = 1 }'
}

# package_version PACKAGE...: the version of the first that is installed.
package_version()
{
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Version}' "$package" 2> /dev/null && return
    done
    echo unknown
}

build_tcmalloc()
{
    local found
    found=$(distributed libtcmalloc_minimal.so.4)
    if [ -z "$found" ]; then
        echo "libtcmalloc_minimal.so.4 was not found: install libtcmalloc-minimal4"
        return 1
    fi
    ln -sf "$(readlink -f "$found")" "$out/tcmalloc.so"
    record tcmalloc "$(package_version libtcmalloc-minimal4 libtcmalloc-minimal4t64)" \
        "libtcmalloc-minimal4" "as the distribution builds it" "unknown"
}

# oneTBB's allocator is in two libraries: the proxy has malloc and is preloaded; it needs the other,
# which the loader finds where the distribution has it.
build_tbbmalloc()
{
    local found
    found=$(distributed libtbbmalloc_proxy.so.2)
    if [ -z "$found" ] || [ -z "$(distributed libtbbmalloc.so.2)" ]; then
        echo "libtbbmalloc_proxy.so.2 was not found: install libtbbmalloc2"
        return 1
    fi
    ln -sf "$(readlink -f "$found")" "$out/tbbmalloc.so"
    record tbbmalloc "$(package_version libtbbmalloc2)" \
        "libtbbmalloc2: libtbbmalloc_proxy.so.2, which loads libtbbmalloc.so.2" \
        "as the distribution builds it" "unknown"
}

# The entries of peers that are not built now stay.
rm -rf "$records"
mkdir -p "$records"
for peer in $peers; do
    among "$peer" $wanted || [ ! -e "$out/$peer.so" ] || [ ! -e "$out/versions.json" ] ||
        sed -n "/^  {\"name\": \"$peer\"/s/,\{0,1\}\$//p" "$out/versions.json" > "$records/$peer"
    [ -s "$records/$peer" ] || rm -f "$records/$peer"
done

if [ $crates -eq 1 ]; then
    echo "fetching the sources pinned in $here/pins.txt"
    rm -rf "$out/manifest"
    mkdir -p "$out/manifest"
    # Cargo writes a lock file beside the manifest: outside the source tree.
    cp "$here/Cargo.toml" "$here/nothing.rs" "$out/manifest/"
    "$cargo" vendor --quiet --manifest-path "$out/manifest/Cargo.toml" "$sources" \
        > "$out/logs/vendor.log" 2>&1 || {
        cat "$out/logs/vendor.log" >&2
        die "cargo could not fetch the sources"
    }
    check_pins
fi

$cc -O1 -fno-builtin "$here/probe.c" -o "$out/probe" -ldl

for peer in $wanted; do
    build "$peer"
done

{
    echo '['
    separator=
    for peer in $peers; do
        [ -e "$records/$peer" ] || continue
        printf '%s' "$separator"
        printf '%s' "$(cat "$records/$peer")"
        separator=$',\n'
    done
    echo
    echo ']'
} > "$out/versions.json"
rm -rf "$records" "$out/work"

if [ ${#failed[@]} -gt 0 ]; then
    die "missing peers: ${failed[*]}"
fi
echo "wrote $out/versions.json"
