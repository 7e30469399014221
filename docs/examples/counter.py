#!/usr/bin/python3
"""counter.py: a page that counts its visitors. KV is a folder in a storefs mount.

The count is one number in one key. The lock belongs to the key, in whatever version and through whatever mount; what is opened
after the lock was got is the newest version, so lock first, and open again to read and to write. The key must be there
first: a new one is not there for others before it is closed.
"""
import fcntl
import os

path = os.path.join(os.environ["KV"], "count.py")
try:
    if not os.path.exists(path):
        open(path, "a").close()
    with open(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(path) as f:
            n = int(f.read() or 0) + 1
        with open(path, "w") as f:  # published, or an OSError, at the end of the block
            f.write(f"{n}\n")
except OSError as e:
    print(f"Status: 503\r\nContent-Type: text/plain\r\n\r\nnot counted: {e}")
else:
    print(f"Content-Type: text/plain\r\n\r\nhit number {n}")
