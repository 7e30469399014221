#!/bin/sh
# guestbook.cgi: shows a guest book; what is posted to it (a form with enctype="text/plain", or just text) is added
# first. KV is a folder in a storefs mount.
#
# The page is one key that is rewritten as a whole: whoever reads it, through a web server or with cat, sees
# the page before or the page after, and never a part. The lock, which belongs to the key in whatever version, makes "read the
# entries, write the page" one step, so that no page misses an entry that an earlier page had.
: "${KV:?is to be the folder that holds the guest book}"

fail() { printf 'Status: 503\r\nContent-Type: text/plain\r\n\r\n%s\n' "$1"; exit 1; }

if [ "${REQUEST_METHOD-POST}" = POST ]; then
  entry=$(head -c 1000 | tr -d '\r' | tr '\n' ' ' | sed 's/^entry=//; s/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g')
  printf '<li>%s\n' "$entry" >> "$KV/entries" || fail "no room for another entry"

  exec 9< "$KV/entries" && flock 9 || fail "no lock"
  entries=$(cat "$KV/entries") || fail "no entries" # once: others append meanwhile
  {
    printf '<html><title>Guest book</title><!-- %d entries --><ol>\n' "$(printf '%s\n' "$entries" | wc -l)"
    printf '%s\n</ol></html>\n' "$entries"
  } > "$KV/page" || fail "no room for the page"
  exec 9>&-
fi

page=$(cat "$KV/page" 2>/dev/null) || page='<html><title>Guest book</title><!-- 0 entries --><ol></ol></html>'
printf 'Content-Type: text/html\r\n\r\n%s\n' "$page"
