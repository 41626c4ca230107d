# Marks prompts and commands. It runs once, before the first prompt, from PROMPT_COMMAND.
unset EXEC_SERVER_HOOKS
if [[ -n ${EXEC_SERVER_PROMPT_COMMAND+x} ]]; then
    PROMPT_COMMAND=$EXEC_SERVER_PROMPT_COMMAND
    unset EXEC_SERVER_PROMPT_COMMAND
else
    unset PROMPT_COMMAND
fi
__exec_server_encode() {
    local LC_ALL=C text=$1 out= c i
    for ((i = 0; i < ${#text} && i < 4096; i++)); do
        c=${text:i:1}
        case $c in
            [a-zA-Z0-9/._~-]) out+=$c ;;
            *) printf -v c '%%%02X' "'$c" && out+=${c/#%FFFFFFFFFFFFFF/%} ;;
        esac
    done
    __exec_server_encoded=$out
}
__exec_server_prompt() {
    local status=$?
    if [[ -n $__exec_server_runs ]]; then
        builtin printf '\e]133;D;%s\a' "$status"
        __exec_server_runs=
    fi
    __exec_server_encode "$PWD"
    builtin printf '\e]7;file://%s\a' "$__exec_server_encoded"
    # Another program may have replaced the prompt.
    __exec_server_last=$(HISTTIMEFORMAT= builtin history 1)
    if [[ $PS1 != *'133;B'* ]]; then
        PS1='\[\e]133;A\a\]'$PS1'\[\e]133;B\a\]'
    fi
    if [[ $PS2 != *'133;A;k=s'* ]]; then
        PS2='\[\e]133;A;k=s\a\]'$PS2'\[\e]133;B\a\]'
    fi
    return "$status"
}
# PS0 is shown after a command was read and before it runs.
__exec_server_command() {
    local line
    line=$(HISTTIMEFORMAT= builtin history 1)
    # A command that is not kept in the history is read from the screen.
    if [[ $line == "$__exec_server_last" ]]; then
        builtin printf '\e]133;C\a'
        return
    fi
    line=${line#"${line%%[![:space:]]*}"}
    line=${line#*[[:space:]]}
    line=${line#"${line%%[![:space:]]*}"}
    __exec_server_encode "$line"
    builtin printf '\e]133;C;cmdline_url=%s\a' "$__exec_server_encoded"
}
__exec_server_runs=
PS0=$PS0'${PS1:0:$((__exec_server_runs=1, 0))}$(__exec_server_command)'
PROMPT_COMMAND="__exec_server_prompt${PROMPT_COMMAND:+; $PROMPT_COMMAND}"
__exec_server_prompt
