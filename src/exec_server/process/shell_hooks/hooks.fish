# Marks prompts and commands; fish 4 does most of it by itself.
if status is-interactive
    function __exec_server_cwd --on-variable PWD
        printf '\e]7;file://%s\a' (string escape --style=url -- $PWD)
    end
    if not string match -qr '^([4-9]|\d\d)' -- $version
        function __exec_server_prompt --on-event fish_prompt
            printf '\e]133;A\a'
        end
        functions -q fish_prompt
        and functions -c fish_prompt __exec_server_fish_prompt
        and function fish_prompt
            __exec_server_fish_prompt
            printf '\e]133;B\a'
        end
        function __exec_server_command --on-event fish_preexec
            printf '\e]133;C;cmdline_url=%s\a' (string escape --style=url -- $argv[1])
        end
        function __exec_server_done --on-event fish_postexec
            printf '\e]133;D;%s\a' $status
        end
    end
    __exec_server_cwd
end
