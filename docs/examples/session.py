#!/usr/bin/python3
"""session.py: remembers each visitor: how often they came, and when last. KV is a folder in a storefs mount.

A session is a key, sessions.py/ID, of JSON. Its lock makes "read it, change it, write it" one step, and keeps nobody out of
other sessions.
"""
import fcntl
import json
import os
import re
import secrets
import time

folder = os.path.join(os.environ["KV"], "sessions.py")
cookie = re.search(r"session=([0-9a-f]{32})", os.environ.get("HTTP_COOKIE", ""))
session_id = cookie[1] if cookie else secrets.token_hex(16)
path = os.path.join(folder, session_id)
try:
    if not cookie:
        os.makedirs(folder, exist_ok=True)
    if not os.path.exists(path):
        open(path, "a").close()
    with open(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(path) as f:
            session = json.loads(f.read() or '{"visits": 0, "last": "never"}')
        last = session["last"]
        session = {"visits": session["visits"] + 1, "last": time.ctime()}
        with open(path, "w") as f:  # published, or an OSError, at the end of the block
            json.dump(session, f)
except OSError as e:
    print(f"Status: 503\r\nContent-Type: text/plain\r\n\r\nnot remembered: {e}")
else:
    if not cookie:
        print(f"Set-Cookie: session={session_id}; HttpOnly; SameSite=Lax\r\n", end="")
    print(f"Content-Type: text/plain\r\n\r\nvisit {session['visits']}, the last one: {last}")
