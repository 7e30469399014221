#!/bin/sh
# counter.cgi: a page that counts its visitors. KV is a folder in a storefs mount.
#
# A hit is one appended line. Appends from any number of processes are whole and never lost, so no lock is needed, and
# the number of lines is the number of hits.
: "${KV:?is to be the folder that holds the counter}"

fail() { printf 'Status: 503\r\nContent-Type: text/plain\r\n\r\n%s\n' "$1"; exit 1; }

date +%s >> "$KV/hits" || fail "no room for another hit"
hits=$(wc -l < "$KV/hits") || fail "no hits"
printf 'Content-Type: text/plain\r\n\r\nhit number %d\n' "$hits"
