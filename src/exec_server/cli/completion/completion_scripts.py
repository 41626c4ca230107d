"""The completion scripts for bash, zsh and fish."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exec_server.cli.completion.completion_command import CommandCompletion, OptionCompletion

# The commands that print words which are not known before the completion.
_DYNAMIC = {
    "servers": "exec-server completion names",
    "targets": "exec-server completion names",
    "names": "exec-server completion names",
    "ids": "exec-server completion ids",
    "processes": "exec-server completion ids 2>/dev/null; exec-server completion names",
}


def _all_names(options: Iterable[OptionCompletion]) -> str:
    return " ".join(name for option in options for name in option.names)


def _valued(command: CommandCompletion) -> tuple[list[OptionCompletion], str, str]:
    """The options with choices, the names of those with files, and of those with other values."""
    with_choices = [each for each in command.options if each.choices]
    rest = [each for each in command.options if each.takes_value and not each.choices]
    files = "|".join(name for each in rest if each.is_file for name in each.names)
    others = "|".join(name for each in rest if not each.is_file for name in each.names)
    return with_choices, files, others


# bash


def bash(server: CommandCompletion, commands: list[CommandCompletion]) -> str:
    names = " ".join(command.name for command in commands)
    branches = "".join(map(_bash_branch, commands))
    return f"""\
# bash completion of exec-server; made by `exec-server completion bash`.
# After SERVER: a path is on the server, not here. bash divides words at colons, too, and replaces
# only what is after the last one.
_exec_server_paths() {{
    local i=$COMP_CWORD word=${{COMP_WORDS[COMP_CWORD]}} path
    while (( i > 1 )) && [[ ${{COMP_WORDS[i]}} == :* || ${{COMP_WORDS[i-1]}} == *: ]]; do
        word=${{COMP_WORDS[--i]}}$word
    done
    word=${{word//\\\\/}}
    while IFS= read -r path; do
        [[ $COMP_WORDBREAKS == *:* ]] && path=${{path#"${{word%"${{word##*:}}"}}"}}
        printf -v path %q "$path"
        [[ $path == */ ]] || path+=' '
        COMPREPLY+=( "$path" )
    done < <(exec-server completion --paths "$word" </dev/null 2>/dev/null)
    # Each of the replies says itself whether a blank follows.
    if (( ${{#COMPREPLY[@]}} )); then compopt -o nospace; fi
}}
_exec_server() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    local options= words= files= i
    COMPREPLY=()
    for (( i = 1; i < COMP_CWORD; i++ )); do
        if [[ ${{COMP_WORDS[i]}} == -- ]]; then compopt -o default; return; fi
    done
    if (( COMP_CWORD > 1 )); then
        i=${{COMP_WORDS[1]}}
    else
        i=
    fi
    case $i in
{branches}\
    *)
{_bash_values(server)}\
        options={shlex.quote(_all_names(server.options))}
        if (( COMP_CWORD == 1 )); then words={shlex.quote(names)}; fi
        ;;
    esac
    if [[ $files && ( $cur == *:* || $prev == : ) ]]; then _exec_server_paths; return; fi
    if [[ $cur == -* ]]; then
        COMPREPLY=( $(compgen -W "$options" -- "$cur") )
    else
        COMPREPLY=( $(compgen -W "$words" -- "$cur") )
        if [[ $files ]]; then
            compopt -o filenames
            COMPREPLY+=( $(compgen -f -- "$cur") )
        fi
    fi
}}
complete -F _exec_server exec-server
"""


def _bash_branch(command: CommandCompletion) -> str:
    lines = f"    {command.name})\n{_bash_values(command)}"
    lines += f"        options={shlex.quote(_all_names(command.options))}\n"
    words = " ".join(command.choices)
    if command.words in _DYNAMIC:
        dynamic = f"$({_DYNAMIC[command.words]} 2>/dev/null)"
        lines += f'        words="{words} {dynamic}"\n'
    else:
        lines += f"        words={shlex.quote(words)}\n"
    if command.words == "targets":
        lines += "        files=1\n"
    return f"{lines}        ;;\n"


def _bash_values(command: CommandCompletion) -> str:
    """The branches for the values of options."""
    with_choices, files, others = _valued(command)
    lines = "        case $prev in\n"
    for option in with_choices:
        choices = shlex.quote(" ".join(option.choices))
        lines += f"        {'|'.join(option.names)})\n"
        lines += f'            COMPREPLY=( $(compgen -W {choices} -- "$cur") ); return ;;\n'
    if files:
        lines += f"        {files}) compopt -o default; return ;;\n"
    if others:
        lines += f"        {others}) return ;;\n"
    return f"{lines}        esac\n" if lines.count("\n") > 1 else ""


# zsh


def zsh(server: CommandCompletion, commands: list[CommandCompletion]) -> str:
    described = "\n".join(
        f"        {shlex.quote(f'{command.name}:{command.summary}')}" for command in commands
    )
    branches = "".join(map(_zsh_branch, commands))
    return f"""\
#compdef exec-server
# zsh completion of exec-server; made by `exec-server completion zsh`.
# After SERVER: a path is on the server, not here.
_exec_server_paths() {{
    local -a paths
    paths=( ${{(f)"$(exec-server completion --paths "${{(Q)PREFIX}}" </dev/null 2>/dev/null)"}} )
    compadd -S '' -- ${{(M)paths:#*/}}
    compadd -- ${{paths:#*/}}
}}
_exec_server() {{
    local prev=$words[CURRENT-1] command=
    local -a commands
    integer end=${{words[(Ie)--]}}
    if (( end && end < CURRENT )); then _files; return; fi
    if (( CURRENT > 2 )); then command=$words[2]; fi
    case $command in
{branches}\
    *)
{_zsh_values(server)}\
        if [[ $PREFIX == -* ]]; then
            compadd -- {_all_names(server.options)}
        elif (( CURRENT == 2 )); then
            commands=(
{described}
            )
            _describe command commands
        fi
        ;;
    esac
}}
if [[ $funcstack[1] == _exec-server ]]; then
    _exec_server "$@"
else
    compdef _exec_server exec-server
fi
"""


def _zsh_branch(command: CommandCompletion) -> str:
    lines = f"    {command.name})\n{_zsh_values(command)}"
    lines += f"        if [[ $PREFIX == -* ]]; then compadd -- {_all_names(command.options)}\n"
    words = [*command.choices]
    if command.words in _DYNAMIC:
        words.append(f"$({_DYNAMIC[command.words]} 2>/dev/null)")
    lines += f"        else compadd -- {' '.join(words)}\n        fi\n"
    if command.words == "targets":
        lines += "        if [[ $PREFIX == *:* ]]; then _exec_server_paths; else _files; fi\n"
    return f"{lines}        ;;\n"


def _zsh_values(command: CommandCompletion) -> str:
    with_choices, files, others = _valued(command)
    lines = ""
    for option in with_choices:
        names, choices = "|".join(option.names), " ".join(map(shlex.quote, option.choices))
        lines += f"        ({names}) compadd -- {choices}; return ;;\n"
    if files:
        lines += f"        ({files}) _files; return ;;\n"
    if others:
        lines += f"        ({others}) return ;;\n"
    return f"        case $prev in\n{lines}        esac\n" if lines else ""


# fish


def fish(server: CommandCompletion, commands: list[CommandCompletion]) -> str:
    lines = [
        "# fish completion of exec-server; made by `exec-server completion fish`.",
        "complete -c exec-server -f",
    ]
    alone = "-n __fish_use_subcommand"
    lines += [
        f"complete -c exec-server {alone} -a {command.name} -d {_fish(command.summary)}"
        for command in commands
    ]
    lines += [_fish_option(alone, option) for option in server.options]
    for command in commands:
        lines += _fish_command(command)
    return "\n".join(lines) + "\n"


def _fish_command(command: CommandCompletion) -> list[str]:
    when = f"-n {_fish(f'__fish_seen_subcommand_from {command.name}')}"
    lines = [_fish_option(when, option) for option in command.options]
    if command.choices:
        lines.append(f"complete -c exec-server {when} -a {_fish(' '.join(command.choices))}")
    if command.words in _DYNAMIC:
        lines.append(f"complete -c exec-server {when} -a {_fish(f'({_DYNAMIC[command.words]})')}")
    if command.words == "targets":
        # After SERVER: a path is on the server, not here.
        there = "string match -q '*:*' -- (commandline -ct)"
        seen = f"__fish_seen_subcommand_from {command.name}"
        paths = _fish("(exec-server completion --paths (commandline -ct) </dev/null 2>/dev/null)")
        lines.append(f"complete -c exec-server -n {_fish(f'{seen}; and not {there}')} -F")
        lines.append(f"complete -c exec-server -n {_fish(f'{seen}; and {there}')} -a {paths}")
    return lines


def _fish_option(when: str, option: OptionCompletion) -> str:
    line = f"complete -c exec-server {when}"
    for name in option.names:
        line += f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
    if option.choices:
        line += f" -x -a {_fish(' '.join(option.choices))}"
    elif option.takes_value:
        line += " -r -F" if option.is_file else " -x"
    return f"{line} -d {_fish(option.help)}"


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
