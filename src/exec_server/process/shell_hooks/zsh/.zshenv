# Puts the user's own ZDOTDIR back, reads the user's .zshenv, and marks prompts and commands.
if [[ -n ${EXEC_SERVER_ZDOTDIR+x} ]]; then
    export ZDOTDIR=$EXEC_SERVER_ZDOTDIR
    unset EXEC_SERVER_ZDOTDIR
else
    unset ZDOTDIR
fi
[[ -r ${ZDOTDIR:-$HOME}/.zshenv ]] && source "${ZDOTDIR:-$HOME}/.zshenv"
if [[ -o interactive ]]; then
    __exec_server_encode() {
        emulate -L zsh -o no_multibyte
        local text=${1[1,4096]} out= c
        for c in ${(s::)text}; do
            case $c in
                [a-zA-Z0-9/._~-]) out+=$c ;;
                *) out+=%$(([##16]#c)) ;;
            esac
        done
        REPLY=$out
    }
    __exec_server_precmd() {
        local status_=$?
        emulate -L zsh
        [[ -n $__exec_server_runs ]] && builtin printf '\e]133;D;%s\a' $status_
        __exec_server_runs=
        local REPLY
        __exec_server_encode $PWD
        builtin printf '\e]7;file://%s\a' $REPLY
        [[ $PS1 != *'133;B'* ]] && PS1=$'%{\e]133;A\a%}'$PS1$'%{\e]133;B\a%}'
        [[ $PS2 != *'133;A;k=s'* ]] && PS2=$'%{\e]133;A;k=s\a%}'$PS2$'%{\e]133;B\a%}'
        return $status_
    }
    __exec_server_preexec() {
        emulate -L zsh
        __exec_server_runs=1
        local REPLY
        __exec_server_encode $1
        builtin printf '\e]133;C;cmdline_url=%s\a' $REPLY
    }
    typeset -g __exec_server_runs=
    autoload -Uz add-zsh-hook
    add-zsh-hook precmd __exec_server_precmd
    add-zsh-hook preexec __exec_server_preexec
fi
