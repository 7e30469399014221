package integration

import "testing"

// shellScript uses what every POSIX shell has to write and read files.
const shellScript = `
set -eu
fail() { echo "$1" >&2; exit 1; }
is() { [ "$1" = "$2" ] || fail "<$1> is not <$2>"; }
echo one > k; is "$(cat k)" one
echo two >> k; printf 'three\n' >> k; is "$(cat k)" "one
two
three"
cat > here <<END
$(cat k | wc -l | tr -d ' ') lines
END
read -r line < here; is "$line" "3 lines"
: > empty; [ -f empty ] && [ ! -s empty ] || fail "empty"
exec 3> fd; echo a >&3; ( echo b >&3 ); echo c >&3; exec 3>&-; is "$(cat fd)" "a
b
c"
exec 4< fd; read -r x <&4; echo new > fd; read -r y <&4; exec 4<&-; is "$x$y" ab
{ echo 1; { echo 2; } ; echo 3; } > group; is "$(wc -l < group | tr -d ' ')" 3
while read -r l; do echo "$l" > each; echo "$l" >> copied; done < group; is "$(cat each)" 3; is "$(cat copied)" "1
2
3"
cat group >> group 2> /dev/null || :; is "$(head -n 3 group | tr -d '\n')" 123
( set -C; ! ( echo no > k ) 2> /dev/null ) || fail "noclobber did not refuse"
( set -C; echo no > fresh ); is "$(cat fresh)" no
( echo out; echo err >&2 ) > both 2>&1; is "$(wc -l < both | tr -d ' ')" 2
mkdir -p d/e; for i in 1 2 3; do echo "$i" > d/e/f$i; done; is "$(echo d/e/*)" "d/e/f1 d/e/f2 d/e/f3"
cd d; is "$(cat e/f2)" 2; cd ..; is "$(cat ./d/../d/e/f3)" 3
ln -s k l; is "$(cat l)" "$(cat k)"; echo through > l; is "$(cat k)" through; [ -h l ] || fail "no link"
mv k k2; [ ! -e k ] || fail "k is there"; is "$(cat k2)" through
umask 027; echo x > masked; is "$(ls -l masked | cut -c 1-10)" "-rw-r-----"; umask 022
printf '#!/bin/sh\necho "ran $0 $1"\n' > prog; chmod +x prog; is "$(./prog arg)" "ran ./prog arg"; set +u; is "$(. ./prog | cut -c 1-3)" ran; set -u
n=0; while [ $n -lt 20 ]; do n=$((n + 1)); echo $n > n; done; is "$(cat n)" 20
for i in 1 2 3 4 5; do ( echo "$i" >> parallel ) & done; wait; is "$(sort parallel | tr -d '\n')" 12345
rm -r d; [ ! -e d ] || fail "d is there"
echo in place 1<> n; is "$(cat n)" "in place"
trap 'echo bye > trapped' EXIT
exit 0
`

func TestToolsShells(t *testing.T) {
	var tools []tool
	for _, sh := range []string{"bash", "dash", "busybox sh", "zsh"} {
		tools = append(tools, tool{sh, sh[:len(sh)-len(after(sh))], sh + ` <<'END_OF_SCRIPT'` + shellScript + "END_OF_SCRIPT\n" + `is "$(cat trapped)" bye; is "$(cat "$O/n")" "in place"`})
	}
	runTools(t, append(tools, []tool{
		{"bash more", "bash", `
mapfile -t a < <(seq 5); printf '%s\n' "${a[@]}" > k; is "$(tail -n 1 k)" 5
coproc cat > c; echo hi >&"${COPROC[1]}"; eval "exec ${COPROC[1]}>&-"; wait; is "$(cat c)" hi
echo a |& tee t1 t2 > t3; is "$(cat t1 t2 t3 | tr -d '\n')" aaa
exec {f}<> rw; echo 12345 >&$f; exec {f}>&-; is "$(< rw)" 12345
shopt -s globstar; mkdir -p x/y/z; touch x/y/z/f; is "$(echo **/f)" x/y/z/f
[[ k -nt /etc/passwd && ! k -ef c ]]
source /dev/stdin <<< 'echo sourced > s'; is "$(cat s)" sourced`},
		{"zsh more", "zsh", `zsh -f <<'END'
setopt errexit
echo multi > a > b; [[ $(<a)$(<b) = multimulti ]]
print -l x y z >| a; [[ ${(F)${(f)"$(<a)"}} = $'x\ny\nz' ]]
diff =(sort a) a
touch d1 d2; [[ ${(j: :)$(print d*(.N))} = "d1 d2" ]]
END
is "$(cat b)" multi`},
		{"busybox applets", "busybox", `
b() { busybox "$@"; }
printf 'c\na\nb\n' > k; b sort -o k k; is "$(tr -d '\n' < k)" abc
b sed -i s/b/B/ k; is "$(tr -d '\n' < k)" aBc
b cp -a k k2; b cmp k k2; b mv k2 k3; b gzip k3; b gunzip k3.gz; b cmp k k3
files src; b tar cf a.tar src; mkdir x; b tar xf a.tar -C x; diff -r --no-dereference src x/src
b dd if=src/dir/large of=large bs=4096 2> /dev/null; b cmp large src/dir/large
is "$(b find src -type f | b wc -l | tr -d ' ')" "$(find src -type f | grep -c '')" || is "$(b find src -name 'f*' | b wc -l | tr -d ' ')" 20
b sha256sum large > sums; b sha256sum -c sums > /dev/null; b truncate -s 10 large; is "$(b stat -c %s large)" 10
printf 'i hello\n.\nw\nq\n' > /dev/null; b printf 'a\n' | b tee -a k > /dev/null; is "$(b tail -n 1 k)" a; b rm -rf src x`},
	}...))
}

// after returns what follows the first word.
func after(s string) string {
	for i, c := range s {
		if c == ' ' {
			return s[i:]
		}
	}
	return ""
}
