package integration

import "testing"

// edited is what every editor leaves: the line changed, the mode as it was, seen everywhere, and no other file.
const edited = `
is "$(cat k)" "a
new
c"
is "$(cat "$O/k")" "$(cat k)"; is "$("$BIN" get "$S" "$(basename "$D")/k")" "$(cat k)"
is "$(stat -c %a k)" 640; is "$(stat -c %a "$O/k")" 640; is "$(ls -A)" "k"`

func TestToolsEditors(t *testing.T) {
	tools := []tool{
		{"ed", "ed", `ed -s k <<< $'2s/old/new/\nw\nq'`},
		{"ed, appending", "ed", `ed -s k <<< $'2d\nw\nq'; ed -s k <<< $'1a\nnew\n.\nw\nq'`},
		{"sed -i", "sed", `sed -i s/old/new/ k`},
		{"sed -i with a backup", "sed", `sed -i.bak s/old/new/ k; is "$(cat k.bak)" "$(printf 'a\nold\nc')"; rm k.bak`},
		{"perl -pi", "perl", `perl -pi -e s/old/new/ k`},
		{"perl -pi with a backup", "perl", `perl -pi.bak -e s/old/new/ k; rm k.bak`},
		{"busybox vi", "busybox script", `TERM=dumb timeout 20 script -qec 'busybox vi -c :%s/old/new/ -c :wq k' /dev/null < /dev/null > /dev/null`},
	}
	for _, copies := range []string{"yes", "no", "auto"} {
		tools = append(tools, tool{"vim backupcopy=" + copies, "vim", `timeout 20 vim -u NONE -es -c 'set nocp bk! bex=~ writebackup backupcopy=` + copies + `' -c '%s/old/new/' -c wq k < /dev/null; [ ! -e k~ ] || is "$(cat k~)" "$(printf 'a\nold\nc')"; rm -f k~`})
	}
	tools = append(tools,
		tool{"vim with swap and undo files", "vim", `timeout 20 vim -u NONE -es -c 'set nocp swapfile undofile undodir=. fsync' -c '%s/old/bad/' -c w -c 'normal u' -c '%s/old/new/' -c wq k < /dev/null; is "$(ls -A)" ".k.un~
k"; timeout 20 vim -u NONE -es -c 'set nocp undofile undodir=.' -c 'normal u' -c 'wq' k < /dev/null; is "$(sed -n 2p k)" old; sed -i s/old/new/ k; rm .k.un~`},
		tool{"vim does not lose what someone else wrote after it read", "vim", `
timeout 20 vim -u NONE -es -c 'set nocp autoread' -c 'silent !printf "a\nold\nc\n\n" > '"$O/k" -c checktime -c '%s/old/new/' -c '$d' -c wq k < /dev/null`},
		tool{"vim, a killed one leaves the old value", "vim", `
( timeout -s KILL 20 vim -u NONE -es -c 'set nocp' -c '%s/old/bad/' -c 'preserve' -c '!kill -9 $PPID' k < /dev/null ) > /dev/null 2>&1 || :
is "$(cat k)" "$(printf 'a\nold\nc')"; [ -e .k.swp ]; sed -i s/old/new/ k; rm .k.swp`},
	)
	for i := range tools {
		tools[i].script = "printf 'a\\nold\\nc\\n' > k; chmod 640 k\n" + tools[i].script + edited
	}
	runTools(t, tools)
}
