# Completion of millrace for fish.
function __millrace_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l list ($words[1] __complete -- $words[2..-1] 2>/dev/null)
    if test "$list" = ":files"
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $list
    end
end
complete -c millrace -f -a '(__millrace_complete)'
