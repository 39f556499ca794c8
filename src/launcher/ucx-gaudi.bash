# SPDX-License-Identifier: BSD-3-Clause
# Completion of ucx-gaudi for bash: its own words, then those of the command.

_ucx_gaudi()
{
    local word=${COMP_WORDS[COMP_CWORD]} at options
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W \
            "run env info check --help --version" \
            -- "$word")
        return
    fi
    case ${COMP_WORDS[1]} in
    run | env) options="--emulate --slot --help" ;;
    info) options="--emulate --json --help" ;;
    check) options="--emulate --card --reset --timeout --output --help" ;;
    *) return ;;
    esac
    if [ "${COMP_WORDS[1]}" = run ]; then
        for ((at = 2; at < COMP_CWORD; ++at)); do
            case ${COMP_WORDS[at]} in
            --)
                ((++at))
                break
                ;;
            -* | = | [0-9]*) ;;
            *) break ;;
            esac
        done
        if [ "$at" -lt "$COMP_CWORD" ] ||
            [ "${COMP_WORDS[at - 1]}" = -- ] || [[ $word != -* ]]; then
            # The command's own completion, where bash-completion has one.
            if declare -F _command_offset >/dev/null; then
                _command_offset "$at"
            else
                mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
            fi
            return
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}
complete -F _ucx_gaudi ucx-gaudi
