"""Further programs for comparisons of terminals: command lines, and the keys of each step."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

# Programs that print and end. The words in capitals are files; see `further`.
PRINTING = r"""
ps aux
ps -ef --forest
df -h
free -h
lscpu
lsblk
vmstat
ip -c addr
ss -tln
id
uname -a
uptime
date
cal -y
stat /
file /bin/sh /etc /dev/null
wc TEXT WIDE CODE
nl CODE
od -c WIDE
od -A x -t x1z TEXT
hexdump -C TEXT
xxd WIDE
xxd -R always TEXT
base64 TEXT
fold -w 30 TEXT
fold -s -w 60 TEXT
fmt -w 50 TEXT
pr -2 TEXT
expand CODE
tac TEXT
rev WIDE
sort -u TEXT
shuf --random-source=TEXT TEXT
cat -A CODE
cat -n TEXT
head -n 60 CODE
tail -n 60 TEXT
paste TEXT TEXT
join TEXT TEXT
comm TEXT CODE
cmp -l TEXT CODE
diff --color=always -u TEXT CODE
diff -y -W 78 TEXT CODE
grep --color=always -n the TEXT
grep --color=always -rn import FOLDER
sed -n l WIDE
awk {print$1"\t"$2} TEXT
find FOLDER -ls
du -ah FOLDER
tree -C FOLDER
seq -w 1 200
factor 123456789 987654321
printenv
getconf -a
locale -a
stty -a
tty
infocmp -1
toe
mount
findmnt
lsns
prlimit
nproc --all
groups
who -a
tar tvf ARCHIVE
gzip -lv ARCHIVE
readelf -hlS /bin/sh
objdump -d /bin/true
nm -D /bin/sh
strings -n 12 /bin/sh
ldd /bin/sh
gcc --help=common
make --help
make -p -f /dev/null
cmake --help
git --no-pager status
git --no-pager branch -av --color=always
git --no-pager show --color=always
git --no-pager blame --color-lines CODE_IN_TREE
git --no-pager grep --color=always -n import -- *.py
git --no-pager shortlog -sn HEAD
git --no-pager help -a
git --no-pager diff --color-words=. HEAD~2
python3 -m calendar 2026
python3 -m this
python3 -m dis CODE
python3 -m pydoc json
python3 -m tokenize CODE
python3 -m ast CODE
python3 -X importtime -c pass
python3 -c import(nothing
perl -v
perl -e print"\e[1;3$_%8mcolour\e[m\t"for(1..200)
openssl help
openssl ciphers -v
jq -C . JSON
jq -n [range(80)]
column -t TEXT
column -c 78 TEXT
rg --color=always -n the TEXT
curl --help all
ssh -V
systemd-analyze --help
dpkg -l
apt-cache stats
figlet terminal
toilet -f future --gay terminal
cowsay moo
lolcat -f TEXT
banner text
ls --hyperlink=always --color=always /usr
ls -lR --color=always FOLDER
dd if=/dev/zero of=/dev/null count=10 status=progress
bash --help
zsh --help
sqlite3 --help
node --help
gdb --help
tmux -V
vim --version
less --help
man --help
python3 --help
gzip --help
tar --help
""".strip().splitlines()

# Programs that are used with keys, after `|`; a step ends with `;`.
USED = """
bc -q | 2^200 enter; scale=20 enter; 1/3 enter; quit enter
dc | 2 enter; 3 enter; +p enter
ed TEXT | 1,5p enter; /the/ enter; Q enter
sqlite3 -interactive | .mode space box enter; .show enter; .help enter
node -i | 1+1 enter; [1,2,{a:3}] enter; 'a'.rep tab; enter
gdb -q /bin/true | info files enter; help enter; q; quit enter
python3 -q -m pdb CODE | l enter; n enter; p 1+1 enter; q enter
python3 -q -m asyncio | 1+1 enter; help(len) enter; q
perl -de0 | print 6*7 enter; h enter; q enter
joe TEXT | hello enter; ctrl-k h; pagedown; ctrl-c
ne TEXT | hello enter; pagedown; escape
mg TEXT | hello enter; pagedown; ctrl-x 2
jed TEXT | hello enter; pagedown; ctrl-x 2
micro TEXT | hello enter; pagedown; ctrl-g
emacs -nw -Q TEXT | hello enter; pagedown; ctrl-x 2; ctrl-h t
kak -n TEXT | ihello escape; j j; :help space
hx TEXT | j j; i hello escape; :
nvim -u NONE -n TEXT | ctrl-f; :set space number enter; :split enter; i hello escape
vimdiff -u NONE -n TEXT CODE | ]c; zo; ctrl-w w
view -u NONE -n WIDE | G; gg; /caf enter
nano -I -l WIDE | down down; ctrl-k; ctrl-u; ctrl-g
tig | down down; enter; q; h
lazygit | down; tab; ?
nnn -H FOLDER | down; ?; q
vifm FOLDER | j; tab; :help enter
ranger FOLDER | j; l; ?
lf FOLDER | j; l; :
fzf --height=100% --walker-root=FOLDER | te; down; up; tab
w3m TEXT | space; b; H
lynx TEXT | space; b; h
links TEXT | space; escape
elinks TEXT | space; escape
irssi -! | /help enter; /win space new enter
weechat -t | /help enter
mutt -n | ?; q
calcurse -D FOLDER | ?; q; tab
newsboat | ?; q
screen -ln sh | echo space hello enter; ctrl-a ?; enter; ctrl-a S
iotop -b -n 1 |
whiptail --yesno go? 8 40 | tab; left
whiptail --menu choose 14 40 4 a first b second | down; tab
whiptail --checklist choose 14 40 4 a first on b second off | space; tab
whiptail --inputbox name 10 40 ann | x; tab
whiptail --textbox TEXT 20 70 | down; pagedown
whiptail --gauge progress 8 40 40 |
cfdisk --help |
aptitude | down; ?; q
hangman | e; a; t
arithmetic | 1 enter
adventure | no enter; look enter
mtr --help |
zsh -f -i | ls space /u tab; tab; ctrl-u; setopt space; ctrl-c
bash --norc -i | ls space /u tab; tab; ctrl-u; ctrl-r; echo; ctrl-c
sh -i | ls enter; cd space / enter; pwd enter
less -N CODE | space; /import enter; &def enter; q
less -R -S WIDE | right; right; left; G
more TEXT | space; enter; q
man -P less man | space; G; q
watch -d -n 100 echo hello |
top -b -n 1 |
tail -f TEXT | ctrl-c
vim -u NONE -n -N -c term TEXT | ls enter; exit enter
script -q /dev/null -c ls |
""".strip().splitlines()


def further(folder: Path, text: str, wide: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Command lines and the keys of their steps; files that they need are made in *folder*."""
    files = folder / "files"
    files.mkdir()
    code, archive, json = files / "code.py", files / "archive.tgz", files / "some.json"
    code.write_text(Path(__file__).read_text())
    json.write_text(
        '{"name": "caf\u00e9", "list": [1, 2.5, null, true], "deep": {"a": {"b": "c"}}}'
    )
    with tarfile.open(archive, "w:gz") as made:
        made.add(code, "code.py")
    words = {
        "TEXT": text,
        "WIDE": wide,
        "CODE": str(code),
        "CODE_IN_TREE": "soak/more_programs.py",
        "FOLDER": str(files),
        "ARCHIVE": str(archive),
        "JSON": str(json),
    }
    for line in (*PRINTING, *USED):
        command, _, keys = line.partition(" | ")
        argv = [words.get(word, word) for word in command.removesuffix("|").split()]
        yield argv, [step.split() for step in keys.split(";") if step.strip()]
