#!/bin/sh
# zig as the C compiler of another system: zig_cc.sh TARGET ARGUMENT...
# zig names systems in its own way and has their headers, so it is not given the names and folders that others need.
target=$1
shift
for argument in "$@"; do
    shift
    case $argument in
    -isysroot | -arch) skip=yes && continue ;;
    --target=* | -mmacosx-version-min=* | -isysroot* | -Wl,*) continue ;;
    esac
    [ -z "$skip" ] || { skip= && continue; }
    set -- "$@" "$argument"
done
exec zig cc -target "$target" "$@"
