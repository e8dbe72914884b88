#compdef millrace
# Completion of millrace for zsh.
_millrace() {
    local line word means
    local -a list
    for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ "$line" == ":files" ]]; then
            _files
            return
        fi
        [[ -n "$line" ]] || continue
        word="${line%%$'\t'*}"
        means="${line#*$'\t'}"
        list+=("${word//:/\\:}:${means}")
    done
    _describe millrace list
}
if [ "${funcstack[1]}" = "_millrace" ]; then
    _millrace "$@"
else
    compdef _millrace millrace
fi
