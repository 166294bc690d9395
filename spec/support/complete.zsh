# Complete each line in a terminal of zsh, and fail if the text does not appear.
# usage: zsh -f complete.zsh FOLDER [LINE TEXT]...      FOLDER: that of the completion functions
zmodload zsh/zpty
folder=${1:A}
shift

# Read from the terminal until the text appears, for at most 20 s.
wait_for() {
  seen=
  for ((i = 0; i < 400; i++)); do
    while zpty -rt terminal part; do seen+=$part; done
    [[ $seen == *$1* ]] && return
    sleep 0.05
  done
  print -r -- "expected '$1', got '$seen'"
  exit 1
}

zpty terminal "TERM=dumb zsh -f -i"
zpty -w terminal "PS1='' fpath=(${(q)folder} \$fpath); autoload -U compinit; compinit -u -D; unsetopt beep; echo rea''dy"
wait_for ready
for line text in "$@"; do
  zpty -w -n terminal "$line"$'\t'
  wait_for "$text"
  zpty -w -n terminal $'\C-u'
done
zpty -d terminal
