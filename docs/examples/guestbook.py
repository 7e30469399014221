#!/usr/bin/python3
"""guestbook.py: shows a guest book; what is posted to it (a form with enctype="text/plain", or just text) is added first. KV
is a folder in a storefs mount.

An entry is a key of its own, made with O_EXCL, so that no lock is needed, none is ever lost, and one can be removed with rm.
The page shows the newest 50.
"""
import html
import os
import sys
import time

folder = os.path.join(os.environ["KV"], "entries.py")


def add(text):
    os.makedirs(folder, exist_ok=True)
    while True:
        try:
            with open(os.path.join(folder, f"{time.time_ns()}"), "x") as f:
                f.write(text)
            return
        except FileExistsError:
            pass


def read(name):
    with open(os.path.join(folder, name)) as f:
        return f.read()


try:
    if os.environ.get("REQUEST_METHOD") == "POST":
        add(" ".join(sys.stdin.read(1000).removeprefix("entry=").split()))
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    entries = [read(name) for name in names[-50:]]
except OSError as e:
    print(f"Status: 503\r\nContent-Type: text/plain\r\n\r\n{e}")
else:
    print(f"Content-Type: text/html\r\n\r\n<html><title>Guest book</title><!-- {len(names)} entries --><ol>")
    print("".join(f"<li>{html.escape(e)}\n" for e in entries) + "</ol></html>")
