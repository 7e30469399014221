package integration

import "testing"

// Programs that copy, pack, cut, join and look for files.
func TestToolsFiles(t *testing.T) {
	runTools(t, []tool{
		{"cp -a to the mount, within it, and back", "cp", `
files "$W/src"; cp -a "$W/src" to; same "$W/src" to; same "$W/src" "$O/to"
cp -a to within; same to within; cp -a "$O/within" "$W/back"; same "$W/src" "$W/back"; rm -r "$W/src" "$W/back"
cp -a --reflink=auto within/dir/large l2; cp --sparse=always within/dir/large l3; cmp l2 l3; cp -u l2 l3; cp -b l2 l3; cmp l3 l3~; cp --remove-destination l2 l3
fails cp --reflink=always l2 l4; fails cp -l l2 l5; [ ! -e l5 ]`},
		{"rsync -a", "rsync", `
files "$W/src"; rsync -a "$W/src/" to; same "$W/src" to; same "$W/src" "$O/to"; is "$(rsync -ain "$W/src/" to)" ""; is "$(rsync -acin "$W/src/" "$O/to")" ""
echo more >> "$W/src/small"; rm "$W/src/dir/deep/f3"; mkdir "$W/src/new"; head -c 100 /dev/zero | dd of="$W/src/dir/large" conv=notrunc status=none
rsync -ac --delete --no-whole-file "$W/src/" to; same "$W/src" to; same "$W/src" "$O/to"
rsync -aX --delete "$O/to/" "$W/back"; same "$W/src" "$W/back"; is "$(find "$O" -name '.*.??????')" ""; rm -r "$W/src" "$W/back"`},
		{"rsync --inplace", "rsync", `
files "$W/src"; rsync -a --inplace "$W/src/" to; same "$W/src" to; ino=$(stat -c %s "$O/to/dir/large")
echo X | dd of="$W/src/dir/large" bs=1 seek=150000 conv=notrunc status=none; echo longer >> "$W/src/dir/deep/f1"; echo > "$W/src/dir/deep/f2"
rsync -ac --inplace --no-whole-file "$W/src/" to; same "$W/src" to; same "$W/src" "$O/to"; is "$(rsync -acin --inplace "$W/src/" to)" ""
echo tail >> "$W/src/dir/large"; rsync -a --append "$W/src/" to; cmp "$W/src/dir/large" "$O/to/dir/large"; rm -r "$W/src"`},
		{"tar", "tar gzip", `
export TAR_OPTIONS=--format=posix; files "$W/src"; tar -cf a.tar -C "$W" src; tar -xpf a.tar; same "$W/src" src; same "$W/src" "$O/src"
tar -czf b.tgz src; mkdir b; tar -xzpf "$O/b.tgz" -C b; same src b/src; tar -df b.tgz; echo x > x; tar -rf a.tar x; is "$(tar -tf "$O/a.tar" | tail -n 1)" x
mkdir "$W/x"; tar -cf - src | tar -xpf - -C "$W/x"; same "$W/src" "$W/x/src"; tar --delete -f a.tar x; is "$(tar -tf "$O/a.tar" | grep -cx x || :)" 0; rm -r "$W/src" "$W/x"`},
		{"zip, unzip", "zip unzip", `
files "$W/src"; rm "$W/src/name with spaces"/*; echo x > "$W/src/name with spaces/näme"; ( cd "$W"; zip -qry "$D/a.zip" src ); unzip -tqq "$O/a.zip"; unzip -qq a.zip; diff -r --no-dereference "$W/src" src; diff -r --no-dereference "$W/src" "$O/src"
echo changed > src/small; zip -qu a.zip src/small; zip -qd a.zip 'src/dir/deep/*'; is "$(unzip -p "$O/a.zip" src/small)" changed; is "$(unzip -l a.zip | grep -c deep/f || :)" 0
zip -qrm moved.zip src/dir; [ ! -e src/dir ]; unzip -qq moved.zip; cmp "$W/src/dir/large" "$O/src/dir/large"; is "$(ls | tr '\n' ' ')" "a.zip moved.zip src "; rm -r "$W/src"`},
		{"gzip", "gzip zcat", `
seq 10000 > k; touch -d 2001-01-01 k; cp -p k "$W/k"; gzip k; [ ! -e "$O/k" ]; is "$(stat -c %Y "$O/k.gz")" "$(stat -c %Y "$W/k")"; cmp <(zcat k.gz) "$W/k"
gunzip k.gz; cmp "$O/k" "$W/k"; is "$(stat -c %Y k)" "$(stat -c %Y "$W/k")"; gzip -9 < k > k.gz; gzip -t "$O/k.gz"; echo more | gzip >> k.gz; is "$(zcat "$O/k.gz" | tail -n 1)" more; fails gzip k < /dev/null`},
		{"dd", "dd", `
head -c 1000000 /dev/urandom > "$W/in"; dd if="$W/in" of=k bs=4k status=none; cmp k "$W/in"; dd if="$W/in" of=k2 bs=1000 oflag=append conv=notrunc status=none; cmp "$O/k2" "$W/in"
dd if=/dev/zero of=k bs=1000 seek=500 count=1 conv=notrunc status=none; cmp -n 500000 k "$W/in"; cmp -i 501000 "$O/k" "$W/in"; is "$(dd if=k bs=1000 skip=500 count=1 status=none | tr -d '\0' | wc -c)" 0
dd if="$W/in" of=k3 bs=64k conv=fsync status=none; cmp "$O/k3" "$W/in"; dd if=/dev/null of=sparse bs=1 seek=5M status=none; is "$(stat -c %s "$O/sparse")" 5242880; fails dd if=k of=new bs=1 count=1 conv=nocreat; dd if=k of=excl count=1 conv=excl status=none; fails dd if=k of=excl count=1 conv=excl`},
		{"split, csplit, paste, join, tee", "split csplit paste join", `
seq 10000 > k; split -l 500 k part.; is "$(ls "$O" | grep -c part)" 20; cat part.* | cmp - k; split -n 7 k chunk.; cat "$O"/chunk.* | cmp - k; split -b 1000 --filter='cat > $FILE.f' k; cat x??.f | cmp - "$O/k"
csplit -sz k '/000$/' '{*}'; cat xx* | cmp - k; paste -d, k k > p; is "$(tail -n 1 "$O/p")" 10000,10000; join -t, <(sort k) <(sort k) > j; is "$(wc -l < "$O/j")" 10000; seq 100 | tee t1 t2 | tee t3 > t4; cat t1 t2 t3 t4 | sort -n | uniq -c | awk '$1 != 4 { exit 1 }'; seq 5 | tee -a t1 > /dev/null; is "$(wc -l < "$O/t1")" 105`},
		{"sort -o the input", "sort shuf", `
seq 20000 | shuf > k; sort -n -o k k; seq 20000 | cmp - k; sort -rn k -o k; seq 20000 -1 1 | cmp - "$O/k"; shuf k -o k; sort -n -S 32k -T . k -o k; seq 20000 | cmp - k; sort -mn k k -o k; is "$(wc -l < "$O/k")" 40000; sort -nu k -o k; is "$(ls -A)" k`},
		{"install", "install", `
echo x > k; install -D -m 640 k a/b/k; is "$(stat -c '%a %s' "$O/a/b/k")" "640 2"; install -p -m 755 -o www-data -g www-data k b; is "$(stat -c '%a %U:%G' "$O/b")" "755 www-data:www-data"; is "$(stat -c %y b)" "$(stat -c %y k)"
echo y > k; install -C k b; is "$(cat "$O/b")" y; install -d -m 700 d1 d1/d2; is "$(stat -c %a "$O/d1/d2")" 700; install -b k b; [ -f b~ ]; cp /bin/true t; install -s t s 2> /dev/null || :; cp /bin/true .; ./true`},
		{"patch, diff", "patch diff", `
seq 100 > k; sed 's/^50$/fifty/' k > "$W/k2"; diff -u k "$W/k2" > p || :; patch -s k p; cmp "$O/k" "$W/k2"; patch -sR k p; seq 100 | cmp - k; patch -sb k p; seq 100 | cmp - k.orig; echo bad > k; fails patch -s k p > /dev/null; is "$(cat "$O/k")" bad; [ -s k.rej ]; is "$(ls -A | grep -c '^p[a-z]*[A-Z]' || :)" 0`},
		{"xargs -P", "xargs", `
seq 200 | xargs -P 8 -I{} sh -c 'echo {} > x{}; echo {} >> log'; is "$(ls "$O" | grep -c '^x')" 200; is "$(sort -n log | tr '\n' ' ')" "$(seq 200 | tr '\n' ' ')"; is "$(cat "$O"/x* | sort -n | uniq | wc -l)" 200; find . -name 'x*' -print0 | xargs -0 -P 4 -n 10 rm; is "$(ls "$O")" log`},
		{"find", "find", `
files f; sleep 0.01; touch stamp; sleep 0.01; echo n > f/newer; echo m >> f/small; is "$(find f -type f -newer stamp -printf '%P\n' | sort | tr '\n' ' ')" "newer small "; is "$(find "$O/f" -type f ! -newer stamp | grep -c deep)" 20; is "$(find f -size +200k -printf %f)" large; is "$(find f -empty -type f -printf %f)" nothing; is "$(find f -perm 600 -printf %f)" small
is "$(find f -xtype l -printf %f)" dangling; is "$(find f -newermt 2001-02-03 ! -newermt 2001-02-04 | wc -l)" 0; find f -name 'f*' -type f -execdir mv {} {}.moved \;; is "$(find "$O/f" -name '*.moved' | wc -l)" 20; find f -depth -delete; [ ! -e "$O/f" ]`},
		{"mktemp", "mktemp", `
a=$(mktemp -p .); b=$(mktemp -p . XXXX.tmp); d=$(mktemp -d -p .); [ -f "$O/$a" ] && [ -d "$O/$d" ] && [ "$a" != "$b" ]; is "$(stat -c %a "$a" "$d" | tr '\n' ' ')" "600 700 "; for i in $(seq 20); do mktemp -p "$d" XXX > /dev/null & done; wait; is "$(ls "$O/$d" | wc -l)" 20; TMPDIR=$PWD bash -c 'cat <(seq 10) <<< x > k'; is "$(ls -A | wc -l)" 4`},
		{"truncate, fallocate, shred", "truncate fallocate shred", `
echo 12345 > k; truncate -s 3 k; is "$(cat "$O/k")" 123; truncate -s +2 k; is "$(stat -c %s "$O/k")" 5; fallocate -l 100 k; is "$(stat -c %s "$O/k")" 100; is "$(head -c 3 k)" 123; truncate -s 1M new; is "$(tr -d '\0' < "$O/new" | wc -c)" 0; seq 100 > s; shred -n 1 -u s; [ ! -e "$O/s" ]`},
		{"ls, du, df, stat, touch, mkdir", "df du", `
seq 1000 > k; is "$(ls -s --block-size=1 k | cut -d' ' -f1)" "$(stat -c '%b*%B' k | sed 's/$//' | xargs -I{} echo '$(({}))' | xargs -I{} bash -c 'echo {}')"; [ "$(du --apparent-size -b "$O" | cut -f1)" -ge 3893 ]; df "$D" | tail -n 1 | awk '{ exit !($2 > 0 && $4 > 0) }'; touch -r /etc/passwd k; is "$(stat -c %Y "$O/k")" "$(stat -c %Y /etc/passwd)"; touch -d '1969-12-31 23:00:00 UTC' k; is "$(stat -c %Y "$O/k")" -3600; touch -d @4200000000.123456789 k; is "$(stat -c %.9Y "$O/k")" 4200000000.123456789
mkdir -m 711 -p a/b; is "$(stat -c %a "$O/a/b")" 711; chmod -R g+w a; chown -R www-data a; is "$(stat -c '%a %U' "$O/a/b")" "731 www-data"; rmdir -p a/b; ln k hard 2> /dev/null && exit 1; ln -s k s; is "$(readlink "$O/s")" k; is "$(realpath s)" "$D/k"; fails mknod n c 1 3; mkfifo f 2> /dev/null && rm f || :; mv -n k s; is "$(readlink s)" k; mv k k1; mv -T k1 k; mv -u k k2; [ -e "$O/k2" ]`},
		{"make", "make gcc", `
cat > Makefile <<'END'
all: prog report
%.o: %.c common.h ; @echo "$@"; gcc -c -o $@ $<
prog: a.o b.o ; @echo "$@"; gcc -o $@ $^
report: prog ; @echo "$@"; ./prog > $@
END
echo 'int answer(void);' > common.h; printf '#include <stdio.h>\n#include "common.h"\nint main(void) { printf("%%d\\n", answer()); }\n' > a.c; printf '#include "common.h"\nint answer(void) { return 42; }\n' > b.c
is "$(make -j2 | sort | tr '\n' ' ')" "a.o b.o prog report "; is "$(cat "$O/report")" 42; is "$(make)" "make: Nothing to be done for 'all'."; is "$(make -C "$O" --no-print-directory)" "make: Nothing to be done for 'all'."
sed -i s/42/43/ b.c; is "$(make | tr '\n' ' ')" "b.o prog report "; is "$(cat "$O/report")" 43; is "$(make)" "make: Nothing to be done for 'all'."
touch "$O/common.h"; cat common.h > /dev/null; is "$(make | tr '\n' ' ')" "a.o b.o prog report "; rm a.o; is "$(make -C "$O" --no-print-directory | tr '\n' ' ')" "a.o prog report "
for i in 1 2 3 4 5; do echo "int answer(void) { return $i; }" > b.c; make > /dev/null; is "$(cat report)" $i; done; make -q`},
		{"less, a forgotten reader", "less python3", `
seq 100000 > k; python3 - "$O" <<'END'
import os, pty, subprocess, sys
pid, tty = pty.fork()
if pid == 0: os.execvp("less", ["less", "k"])
seen = b""
while b"20" not in seen: seen += os.read(tty, 1000)   # the first screen is there
subprocess.run(["sh", "-c", 'for i in $(seq 20); do echo $i > k; done; mv k k2; rm "$1/k2"; echo last > k; [ "$(cat "$1/k")" = last ]', "sh", sys.argv[1]], check=True)
os.write(tty, b"G"); seen = b""
while b"100000" not in seen: seen += os.read(tty, 1000)   # the end of the version that it opened
os.write(tty, b"q")
try:
    while os.read(tty, 1000): pass
except OSError: pass
assert os.waitpid(pid, 0)[1] == 0
END`},
	})
}
