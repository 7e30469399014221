package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gitSetup keeps git from the machine's configuration, and from leaving processes behind.
const gitSetup = `
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$W/gitconfig GIT_TERMINAL_PROMPT=0
git config --global user.name tester; git config --global user.email t@example.org; git config --global init.defaultBranch main
git config --global gc.autoDetach false; git config --global advice.detachedHead false; git config --global protocol.file.allow always
`

// index-pack opens the pack that it is writing by its name, which is not there before the pack is published: with more than one
// thread. Hence pack.threads=1 for what comes over a transport (docs/programs.md).
func TestToolsGit(t *testing.T) {
	commits := "100"
	if testing.Short() {
		commits = "8"
	}
	runTools(t, []tool{{"git", "git", replaceAll(gitSetup+`
git init -q repo; cd repo
for i in $(seq COMMITS); do echo "$i" > "f$((i % 7))"; git add -A; git commit -qm "commit $i"; done
is "$(git rev-list --count HEAD)" COMMITS; is "$(git status --porcelain)" ""; is "$(git -C "$O/repo" rev-parse HEAD)" "$(git rev-parse HEAD)"; git fsck --full --strict
git gc -q --prune=now; git fsck --full --strict; is "$(find .git/objects -name '*.pack' | wc -l)" 1; is "$(git count-objects -v | sed -n 's/^count: //p')" 0
git clone -q . "$W/out"; git clone -q "$W/out" ../in; git -c pack.threads=1 clone -q --no-local "$O/repo" ../again; for c in "$W/out" ../in ../again; do git -C "$c" fsck --full; is "$(git -C "$c" rev-parse HEAD)" "$(git rev-parse HEAD)"; is "$(git -C "$c" status --porcelain)" ""; done
git checkout -q -b side HEAD~3; echo side > s; git add s; git commit -qm side; git checkout -q main; git merge -q -m merge side; git rebase -q --onto main~1 main~1 side; git checkout -q main; git tag v1; git stash -q 2> /dev/null || :
echo dirty >> f1; git stash -q; git stash pop -q; git checkout -q f1; git mv f1 g1; git commit -qm moved; git reset -q --hard HEAD~1; [ -f f1 ]; git grep -q side; git bisect start HEAD HEAD~4 > /dev/null; git bisect good > /dev/null; git bisect reset > /dev/null 2>&1
git push -q "$W/out" main:pushed; cd ../in; git -c pack.threads=1 pull -q --no-rebase "$O/repo" main; is "$(git rev-parse HEAD)" "$(git -C ../repo rev-parse main)"; git fsck --full; cd ..; git -C repo worktree add -q ../tree HEAD~1; is "$(git -C tree status --porcelain)" ""; git -C repo worktree remove tree
git -C repo gc -q --aggressive --prune=now; git -C "$O/repo" fsck --full; git -C repo bundle create -q ../b HEAD; git -C "$W/out" bundle verify -q "$D/b" > /dev/null; rm -rf repo in again; is "$(ls)" b`, "COMMITS", commits)},
		{"two gits on two mounts", "git", gitSetup + `
git init -q repo; ( cd repo; : > lock; echo lock > .git/info/exclude; git commit -q --allow-empty -m start )
work() { for i in $(seq 6); do ( cd "$1/repo"; flock lock sh -c "echo $2 > $2.$i && git add $2.$i && git commit -qm $2.$i" ); done; }
work "$D" a & a=$!; work "$O" b & b=$!; wait $a; wait $b; is "$(git -C repo rev-list --count HEAD)" 13; git -C repo fsck --full; is "$(git -C "$O/repo" status --porcelain)" ""`},
	})
}

// git's own lock (O_EXCL) keeps a second process out, through any mount.
func TestToolsGitLock(t *testing.T) {
	needTools(t, "git")
	w, m, n := two(t)
	w.sh(`git init -q repo; : > repo/.git/index.lock`)
	r := w.try(`cd $N/repo; echo x > f; git add f`)
	if r.status == 0 || !strings.Contains(r.err, "index.lock") {
		t.Errorf("git add beside a lock: status %d: %s", r.status, r.err)
	}
	must(t, os.Remove(filepath.Join(m, "repo/.git/index.lock")))
	w.sh(`cd $N/repo && git add f`)
	if _, err := os.Stat(n + "/repo/.git/index"); err != nil {
		t.Error(err)
	}
}
