#!/bin/sh
# session.cgi: remembers each visitor: how often they came, and when last. KV is a folder in a storefs mount.
#
# A session is a key, sessions/ID, of name=value lines. Its lock makes "read it, change it, write it" one step, and keeps
# nobody out of other sessions. Sessions of visitors who stay away are removed by
#   find "$KV/sessions" -type f -mmin +1440 -delete
: "${KV:?is to be the folder that holds the sessions}"

fail() { printf 'Status: 503\r\nContent-Type: text/plain\r\n\r\n%s\n' "$1"; exit 1; }

new=
id=$(printf '%s' "${HTTP_COOKIE-}" | sed -n 's/.*session=\([0-9a-f]\{32\}\).*/\1/p')
if [ -z "$id" ]; then
  new=1 id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  mkdir -p "$KV/sessions" || fail "no room for a session"
fi
[ -e "$KV/sessions/$id" ] || : >> "$KV/sessions/$id" || fail "no room for a session"
exec 9< "$KV/sessions/$id" && flock 9 || fail "no session"
visits=0 last=never
while IFS='=' read -r name value; do
  case $name in visits) visits=$value ;; last) last=$value ;; esac
done < "$KV/sessions/$id"
visits=$((visits + 1))
# Shells hide the error of close, printf in dd's input does not: dd publishes, and its status tells the truth.
printf 'visits=%s\nlast=%s\n' "$visits" "$(date +%FT%T)" | dd of="$KV/sessions/$id" status=none || fail "not remembered"
exec 9>&-
[ -z "$new" ] || printf 'Set-Cookie: session=%s; HttpOnly; SameSite=Lax\r\n' "$id"
printf 'Content-Type: text/plain\r\n\r\nvisit %d, the last one: %s\n' "$visits" "$last"
