# SPDX-License-Identifier: Apache-2.0
# Copies a text without what says whose it is.
#   awk -f hide.awk PRIVATE TEXT
# PRIVATE has a line "kind<TAB>replacement<TAB>what" for each thing that nobody
# else shall see, the longest first; kind: word (not within a longer one) or
# path (neither, at its end). Other people's homes and patterns of addresses
# and identities are replaced, too. In any POSIX awk, so without {n}.

function is_letter(c) { return c ~ /^[A-Za-z0-9]$/ }

# LINE with WITH instead of WHAT, which is in small letters.
function without(line, what, with, kind,    size, low, done, at, last, kept) {
    size = length(what)
    low = tolower(line)
    while ((at = index(low, what)) > 0) {
        if (at > 1)
            last = substr(line, at - 1, 1)
        kept = is_letter(substr(line, at + size, 1)) || \
            (kind == "word" && is_letter(last))
        if (kept) { # on behind its first letter
            done = done substr(line, 1, at)
            last = substr(line, at, 1)
        } else {
            done = done substr(line, 1, at - 1) with
            last = ""
            at += size - 1
        }
        line = substr(line, at + 1)
        low = substr(low, at + 1)
    }
    return done line
}

# LINE with WITH instead of what matches PATTERN between words.
function without_pattern(line, pattern, with,    done, last, kept) {
    while (match(line, pattern)) {
        if (RSTART > 1)
            last = substr(line, RSTART - 1, 1)
        kept = is_letter(last) || last == "." || \
            is_letter(substr(line, RSTART + RLENGTH, 1))
        done = done substr(line, 1, RSTART - 1)
        done = done (kept ? substr(line, RSTART, RLENGTH) : with)
        last = substr(line, RSTART + RLENGTH - 1, 1)
        line = substr(line, RSTART + RLENGTH)
    }
    return done line
}

BEGIN {
    FS = "\t"
    x4 = "[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]"
    uuid = x4 x4 "-" x4 "-" x4 "-" x4 "-" x4 x4 x4
    byte = "([01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])"
    ipv4 = byte "[.]" byte "[.]" byte "[.]" byte
    mail = "[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+[.][A-Za-z0-9.-]*[A-Za-z]"
}

NR == FNR {
    if ($3 != "") {
        count++
        kind[count] = $1
        with[count] = $2
        what[count] = tolower($3)
    }
    next
}

{
    line = $0
    # what a terminal would obey
    gsub(/[\001-\010\013-\037\177]|\302[\200-\237]/, "?", line)
    for (i = 1; i <= count; i++)
        line = without(line, what[i], with[i], kind[i])
    gsub(/[\/\\](home|Users)[\/\\][^\/\\ "'<>:;,)]+/, "/home/<user>", line)
    line = without_pattern(line, mail, "<mail>")
    line = without_pattern(line, uuid, "<id>")
    # versions of drivers may look like addresses
    if (tolower(line) !~ /driver|version/)
        line = without_pattern(line, ipv4, "<address>")
    if (match(tolower(line), /(serial|luid)( number| no[.]?|#)? *[:=] */))
        line = substr(line, 1, RSTART + RLENGTH - 1) "<id>"
    print line
}
